#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""etc/alerts.yaml and etc/dashboard.json name only what is there: metrics and labels of docs/metrics.md, commands of railmuxctl.

    check_monitoring.py ROOT           check a tree; then plant faults in what was read, each of which must be found
    check_monitoring.py --format FILE  rewrite a dashboard (one that Grafana has exported, say) in the layout of ours

Prometheus takes an expression with a wrong name for one that never matches, and says nothing. Hence the small parser of
PromQL below. It knows as much of the language as is used here, and refuses the rest: extend it when a rule needs more.
"""

import copy
import json
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

try:
    import yaml
except ImportError:
    yaml = None

SKIPPED = 77  # for ctest
TARGET_LABELS = {"instance", "job"}  # which Prometheus adds
# Of others: node_exporter's, and Prometheus' own.
EXTERNAL = {"node_textfile_mtime_seconds": ("gauge", {"file"}), "up": ("gauge", set())}
WIDTH = 120  # of the dashboard's lines
GRID = 24  # columns of a dashboard
GRAFANA_10 = {38, 39}  # its schema versions
UNITS = {"short", "bytes", "Bps", "s", "percentunit", "ops", "cps"}


class Facts(NamedTuple):
    metrics: dict  # name: (kind, labels)
    commands: set


def read_facts(root):
    metrics = dict(EXTERNAL)
    rows = re.findall(r"^\| `(railmux_\w+)` \| (\w+) \| ([\w, ]*?) ?\|", (root / "docs/metrics.md").read_text(), re.MULTILINE)
    for name, kind, labels in rows:
        metrics[name] = (kind, set(filter(None, labels.split(", "))))
    table = re.search(r"\bcommands\[\] = \{\n(.*?)\n\};", (root / "tools/ctl/main.c").read_text(), re.DOTALL).group(1)
    return Facts(metrics, set(re.findall(r'^ +\{"([a-z-]+)", ', table, re.MULTILINE)))


# ---- PromQL ----------------------------------------------------------------------------------------------------------
DURATION = r"(?:\d+(?:ms|[smhdwy]))+"
TOKEN = re.compile(
    rf"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<duration>{DURATION}\b|\$__rate_interval\b)|(?P<number>\d+(?:\.\d+)?)"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<sign>=~|!~|[=!<>]=|[-+*/<>=(){}\[\],])|(?P<end>$))"""
)
COMPARISONS = ("==", "!=", "<=", "<", ">=", ">")
SETS = ("or", "and", "unless")
LEVELS = (("or",), ("and", "unless"), COMPARISONS, ("+", "-"), ("*", "/"))
OF_COUNTERS = {"rate", "irate", "increase"}
OF_GAUGES = {"avg_over_time", "max_over_time", "min_over_time", "changes"}
AGGREGATIONS = {"sum", "min", "max", "avg", "count"}


class Fault(Exception):
    pass


class Query:
    """labels: those of the result, None for a number. selectors: (metric, {(label, operator, value)}) of all that is read."""

    def __init__(self, text, facts):
        self.facts = facts
        self.selectors = []
        self.tokens = []
        at = 0
        while not self.tokens or self.tokens[-1][0] != "end":
            match = TOKEN.match(text, at)
            if not match:
                raise Fault(f"what is '{text[at:].strip()}'?")
            self.tokens.append((match.lastgroup, match.group(match.lastgroup)))
            at = match.end()
        self.at = 0
        self.labels = self.binary(0)
        self.take("end")

    def next_is(self, *texts):
        kind, text = self.tokens[self.at]
        return kind in ("word", "sign") and text in texts

    def accept(self, *texts):
        if not self.next_is(*texts):
            return None
        self.at += 1
        return self.tokens[self.at - 1][1]

    def take(self, kind, *texts):
        found, text = self.tokens[self.at]
        if found != kind or (texts and text not in texts):
            raise Fault(f"{' or '.join(texts) or kind} expected, not '{text or 'the end'}'")
        self.at += 1
        return text

    def binary(self, level):
        if level == len(LEVELS):
            return self.operand()
        left = self.binary(level + 1)
        while operator := self.accept(*LEVELS[level]):
            if operator in COMPARISONS:
                self.accept("bool")
            on = self.names() if self.accept("on") else None
            left = self.join(operator, left, on, self.binary(level + 1))
        return left

    def join(self, operator, left, on, right):
        if left is None or right is None:
            if operator in SETS or on is not None:
                raise Fault(f"'{operator}' of what is only a number")
            return left if right is None else right
        if on is not None:
            for label in on - (left & right):
                raise Fault(f"on ({label}): not both sides have that label")
        elif left != right and operator != "or":
            raise Fault(f"'{operator}' never matches: one side has {sorted(left)}, the other {sorted(right)}")
        if operator == "or":
            return left & right
        return left if on is None or operator in SETS else frozenset(on)

    def names(self):
        names = set()
        self.take("sign", "(")
        while not self.accept(")"):
            names.add(self.take("word"))
            self.accept(",") or self.next_is(")") or self.take("sign", ",", ")")
        return names

    def operand(self):
        if self.accept("("):
            labels = self.binary(0)
            self.take("sign", ")")
            return labels
        if self.tokens[self.at][0] == "number":
            self.take("number")
            return None
        word = self.take("word")
        if word in AGGREGATIONS:
            return self.aggregation()
        if not self.next_is("("):
            return self.selector(word, None)
        self.take("sign", "(")
        if word in OF_COUNTERS | OF_GAUGES:
            labels = self.selector(self.take("word"), word)
        elif word == "absent":
            self.binary(0)
            labels = frozenset()
        elif word == "time":
            labels = None
        else:
            raise Fault(f"function {word} is not known here")
        self.take("sign", ")")
        return labels

    def aggregation(self):
        by = self.names() if self.accept("by") else set()
        self.take("sign", "(")
        labels = self.binary(0)
        self.take("sign", ")")
        for label in by - (labels or set()):
            raise Fault(f"by ({label}): there is no such label")
        return frozenset(by)

    def selector(self, name, function):
        if name not in self.facts.metrics:
            raise Fault(f"there is no metric {name}")
        kind, labels = self.facts.metrics[name]
        labels = frozenset(labels | TARGET_LABELS)
        matchers = set()
        if self.accept("{"):
            while not self.accept("}"):
                matchers.add((self.take("word"), self.take("sign", "=", "!=", "=~", "!~"), self.take("string")))
                self.accept(",") or self.next_is("}") or self.take("sign", ",", "}")
        for label, _, _ in matchers:
            if label not in labels:
                raise Fault(f"{name} has no label {label}")
        if kind == "counter" and function not in OF_COUNTERS:
            raise Fault(f"{name} is a counter, which says something inside rate() or increase() only")
        if kind == "gauge" and function in OF_COUNTERS:
            raise Fault(f"{name} is a gauge, of which {function}() says nothing")
        if function:
            self.take("sign", "[")
            self.take("duration")
            self.take("sign", "]")
        self.selectors.append((name, matchers))
        return labels


# ---- alerting rules --------------------------------------------------------------------------------------------------
TEMPLATE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
TEMPLATE_LABEL = re.compile(r"\$labels\.(\w+)")
TEMPLATE_VALUE = re.compile(r'\$value(?: \| (?:humanize|humanizeDuration|humanizePercentage|printf "%\.\df"))?')
COMMAND = re.compile(r"\brailmuxctl (?:--\w+ )*([a-z-]+)")


def check_template(text, labels):
    for content in TEMPLATE.findall(text):
        label = TEMPLATE_LABEL.fullmatch(content.strip())
        if label and label.group(1) not in labels:
            yield f"the expression has no label {label.group(1)} for '{{{{{content}}}}}'"
        if not label and not TEMPLATE_VALUE.fullmatch(content.strip()):
            yield f"'{{{{{content}}}}}' is not known here"


def check_rule(rule, facts):
    for key in {"alert", "expr", "for", "labels", "annotations"} ^ rule.keys():
        yield f"{key} is {'unknown' if key in rule else 'missing'}"
    if not re.fullmatch(DURATION, str(rule.get("for", "0m"))):
        yield f"for: {rule['for']} is no duration"
    labels, annotations = rule.get("labels") or {}, rule.get("annotations") or {}
    if labels.get("severity") not in ("warning", "critical"):
        yield "severity is neither warning nor critical"
    for key in ("summary", "description"):
        if not annotations.get(key):
            yield f"{key} is missing"
    commands = COMMAND.findall(annotations.get("description", ""))
    if not commands:
        yield "the description names no command of railmuxctl"
    for command in commands:
        if command not in facts.commands:
            yield f"railmuxctl has no command {command}"
    try:
        query = Query(rule.get("expr", ""), facts)
    except Fault as fault:
        yield str(fault)
        return
    if query.labels is None:
        yield "the expression is a number"
    for text in annotations.values():
        yield from check_template(text, query.labels or set())


def twice(values):
    return sorted({str(value) for value in values if values.count(value) > 1})


def check_rules(document, facts):
    groups = document["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    for name in twice([group["name"] for group in groups]) + twice([rule.get("alert") for rule in rules]):
        yield f"{name} is there twice"
    for rule in rules:
        if not re.fullmatch(r"Railmux[A-Z]\w+", rule.get("alert", "")):
            yield f"an alert is called '{rule.get('alert')}'"
        for complaint in check_rule(rule, facts):
            yield f"{rule.get('alert')}: {complaint}"


# ---- the dashboard ---------------------------------------------------------------------------------------------------
def check_target(target, facts, variables):
    text = target["expr"]
    for name in re.findall(r"\$\{?(\w+)", text):
        if name not in variables | {"__rate_interval"}:
            yield f"there is no variable {name}"
    try:
        query = Query(text, facts)
    except Fault as fault:
        yield str(fault)
        return
    for name, matchers in query.selectors:
        if ("instance", "=~", '"$instance"') not in matchers:
            yield f"{name} does not follow the variable instance"
    for label in TEMPLATE.findall(target.get("legendFormat", "")):
        if label.strip() not in (query.labels or set()):
            yield f"the expression has no label {label.strip()} for its legend"


def check_panel(panel, facts, variables):
    if not panel.get("title"):
        yield "title is missing"
    place = panel["gridPos"]
    if place["x"] < 0 or place["y"] < 0 or place["w"] < 1 or place["h"] < 1 or place["x"] + place["w"] > GRID:
        yield f"it lies outside of the grid: {place}"
    if panel["type"] == "row":
        return
    if panel.get("datasource") != {"type": "prometheus", "uid": "${datasource}"}:
        yield "its datasource is not the variable"
    if panel["fieldConfig"]["defaults"].get("unit") not in UNITS:
        yield f"unit is missing, or is none of {sorted(UNITS)}"
    if not panel["targets"]:
        yield "it shows nothing"
    for name in twice([target["refId"] for target in panel["targets"]]):
        yield f"refId {name} is there twice"
    for target in panel["targets"]:
        yield from check_target(target, facts, variables)


def overlap(a, b):
    return a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]


def check_dashboard(document, facts):
    panels = document["panels"]
    variables = {variable["name"]: variable for variable in document["templating"]["list"]}
    if document["schemaVersion"] not in GRAFANA_10:
        yield "schemaVersion is not that of Grafana 10"
    for name, kind in (("datasource", "datasource"), ("instance", "query")):
        if variables.get(name, {}).get("type") != kind:
            yield f"there is no variable {name} of type {kind}"
    for variable in variables.values():
        for metric, label in re.findall(r"label_values\((\w+), (\w+)\)", json.dumps(variable["query"])):
            if label not in facts.metrics.get(metric, ("", set()))[1] | TARGET_LABELS or metric not in facts.metrics:
                yield f"variable {variable['name']}: there is no {metric} with {label}"
    for name in twice([panel["id"] for panel in panels]):
        yield f"id {name} is there twice"
    for i, panel in enumerate(panels):
        for complaint in check_panel(panel, facts, variables.keys()):
            yield f"panel {panel['id']} ({panel.get('title')}): {complaint}"
        for other in panels[:i]:
            if overlap(panel["gridPos"], other["gridPos"]):
                yield f"panels {other['id']} and {panel['id']} overlap"


def layout(value, indent=0, used=0):
    """JSON in which everything that fits stands on one line. used: columns that its line has lost already."""
    line = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, (dict, list)) or used + len(line) + 1 <= WIDTH:  # and a comma
        return line
    inner = " " * (indent + 2)
    if isinstance(value, list):
        parts, ends = [inner + layout(item, indent + 2, indent + 2) for item in value], "[]"
    else:
        heads = [inner + json.dumps(key, ensure_ascii=False) + ": " for key in value]
        parts, ends = [head + layout(item, indent + 2, len(head)) for head, item in zip(heads, value.values())], "{}"
    return ends[0] + "\n" + ",\n".join(parts) + "\n" + " " * indent + ends[1]


def check_layout(text):
    if text != layout(json.loads(text)) + "\n":
        yield "it is not laid out as --format does it"


# ---- faults that must be found ---------------------------------------------------------------------------------------
class Tree(NamedTuple):
    facts: Facts
    rules: dict
    board: dict


def expression(alert, text):
    return lambda tree: rule_of(tree, alert).update(expr=text)


def annotation(alert, key, text):
    return lambda tree: rule_of(tree, alert)["annotations"].update({key: text})


def without(alert, *path):
    def change(tree):
        at = rule_of(tree, alert)
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]

    return change


def rule_of(tree, alert):
    return next(rule for group in tree.rules["groups"] for rule in group["rules"] if rule["alert"] == alert)


def query(text, **more):
    return lambda tree: panel_of(tree)["targets"][0].update(expr=text, **more)


def panel_of(tree, title="Collectives"):
    return next(panel for panel in tree.board["panels"] if panel["title"] == title)


OPERATIONS = 'rate(railmux_executor_operations_total{instance=~"$instance"}[$__rate_interval])'
MUTATIONS = [
    # expressions of rules
    ("no metric railmux_executors_up", expression("RailmuxExecutorDown", "railmux_executors_up == 0")),
    ("no metric node_load1", expression("RailmuxExecutorDown", "node_load1 > 5")),
    ("railmux_restarts_total is a counter", expression("RailmuxRestarts", "railmux_restarts_total >= 3")),
    ("railmux_restarts_total is a counter", expression("RailmuxRestarts", "changes(railmux_restarts_total[1h]) >= 3")),
    ("railmux_executor_up is a gauge", expression("RailmuxExecutorDown", "increase(railmux_executor_up[5m]) > 0")),
    ("railmux_comms has no label status", expression("RailmuxCommsLeftFailed", 'railmux_comms{status="failed"} > 0')),
    ("by (peer): there is no such label", expression("RailmuxNodeWithoutRoute", "max by (peer) (railmux_rail_up) == 0")),
    ("by (rail): there is no such label", expression("RailmuxRailOut", "max by (rail) (max by (job) (railmux_rail_up)) == 0")),
    ("on (rail): not both sides", expression("RailmuxRouteDown", "railmux_route_up == 0 and on (rail) railmux_peer_up == 1")),
    ("'and' never matches", expression("RailmuxRouteDown", "railmux_route_up == 0 and railmux_rail_up == 1")),
    ("'/' never matches", expression("RailmuxTenantNearLimit", "railmux_tenant_used / railmux_sessions > 0.9")),
    ("'and' of what is only a number", expression("RailmuxRailOut", "railmux_rail_up == 0 and 1")),
    ("function rat is not known", expression("RailmuxPeerLost", "rat(railmux_peer_losses_total[5m]) > 0")),
    ("[ expected", expression("RailmuxPeerLost", "increase(railmux_peer_losses_total) > 0")),
    ("end expected", expression("RailmuxExecutorDown", "railmux_executor_up[5m] == 0")),
    (") expected", expression("RailmuxExecutorDown", "(railmux_executor_up == 0")),
    ("end expected", expression("RailmuxExecutorDown", "railmux_executor_up 0")),
    ("what is '? 0'", expression("RailmuxExecutorDown", "railmux_executor_up ? 0")),
    ("duration expected", expression("RailmuxPeerLost", "increase(railmux_peer_losses_total[10]) > 0")),
    ("the expression is a number", expression("RailmuxMetricsStale", "time() > 5")),
    # the rest of rules
    ("RailmuxRailOut: the expression has no label peer", annotation("RailmuxRailOut", "summary", "{{ $labels.peer }}")),
    ("RailmuxRailOut: the expression has no label job1", annotation("RailmuxRailOut", "description", "{{$labels.job1}}")),
    ("RailmuxVersionSkew: the expression has no label ver", annotation("RailmuxVersionSkew", "summary", "{{ $labels.version }}")),
    ("'{{ $vale }}' is not known", annotation("RailmuxRailOut", "summary", "{{ $vale }}")),
    ("severity is neither", without("RailmuxPeerDown", "labels", "severity")),
    ("severity is neither", lambda tree: rule_of(tree, "RailmuxPeerDown")["labels"].update(severity="page")),
    ("labels is missing", without("RailmuxPeerDown", "labels")),
    ("for is missing", without("RailmuxPeerDown", "for")),
    ("is no duration", lambda tree: rule_of(tree, "RailmuxPeerDown").update({"for": "5 minutes"})),
    ("expr is missing", without("RailmuxPeerDown", "expr")),
    ("fore is unknown", lambda tree: rule_of(tree, "RailmuxPeerDown").update(fore="5m")),
    ("summary is missing", without("RailmuxPeerDown", "annotations", "summary")),
    ("description is missing", without("RailmuxPeerDown", "annotations", "description")),
    ("railmuxctl has no command peer", annotation("RailmuxPeerDown", "description", "See railmuxctl peer.")),
    ("railmuxctl has no command rank", annotation("RailmuxPeerDown", "description", "See railmuxctl --json rank.")),
    ("names no command", annotation("RailmuxPeerDown", "description", "Good luck.")),
    ("RailmuxPeerLost is there twice", lambda tree: rule_of(tree, "RailmuxPeerDown").update(alert="RailmuxPeerLost")),
    ("railmux-nodes is there twice", lambda tree: tree.rules["groups"][0].update(name="railmux-nodes")),
    ("an alert is called 'PeerDown'", lambda tree: rule_of(tree, "RailmuxPeerDown").update(alert="PeerDown")),
    # what the files are compared with
    ("RailmuxRailOut: there is no metric railmux_rail_up", lambda tree: tree.facts.metrics.pop("railmux_rail_up")),
    ("Routes that are up): there is no metric railmux_route_up", lambda tree: tree.facts.metrics.pop("railmux_route_up")),
    ("no railmux_build_info with instance", lambda tree: tree.facts.metrics.pop("railmux_build_info")),
    ("railmuxctl has no command tenants", lambda tree: tree.facts.commands.remove("tenants")),
    # the dashboard
    ("no metric railmux_executor_ops_total", query(OPERATIONS.replace("operations", "ops"))),
    ("railmux_executor_operations_total is a counter", query('railmux_executor_operations_total{instance=~"$instance"}')),
    ("railmux_executor_up is a gauge", query(OPERATIONS.replace("operations_total", "up"))),
    ("railmux_executor_operations_total has no label rail", query(OPERATIONS.replace("{", '{rail="r0", '))),
    ("does not follow the variable", query(OPERATIONS.replace('{instance=~"$instance"}', ""))),
    ("there is no variable host", query(OPERATIONS.replace("$instance", "$host"))),
    ("no label gpu for its legend", query(OPERATIONS, legendFormat="{{gpu}}")),
    ("no label executor for its legend", query(f"sum({OPERATIONS})", legendFormat="{{ executor }}")),
    ("id 1 is there twice", lambda tree: panel_of(tree).update(id=1)),
    ("overlap", lambda tree: panel_of(tree)["gridPos"].update(w=7)),
    ("overlap", lambda tree: panel_of(tree)["gridPos"].update(panel_of(tree, "Stalled")["gridPos"])),
    ("outside of the grid", lambda tree: panel_of(tree)["gridPos"].update(x=20)),
    ("unit is missing", lambda tree: panel_of(tree)["fieldConfig"]["defaults"].pop("unit")),
    ("unit is missing", lambda tree: panel_of(tree)["fieldConfig"]["defaults"].update(unit="byte")),
    ("title is missing", lambda tree: panel_of(tree).update(title="")),
    ("its datasource is not the variable", lambda tree: panel_of(tree)["datasource"].update(uid="P1809F7CD0C75ACF3")),
    ("its datasource is not the variable", lambda tree: panel_of(tree).pop("datasource")),
    ("refId A is there twice", lambda tree: panel_of(tree, "Made and failed")["targets"][1].update(refId="A")),
    ("it shows nothing", lambda tree: panel_of(tree)["targets"].clear()),
    ("no variable datasource", lambda tree: tree.board["templating"]["list"].pop(0)),
    ("no variable instance", lambda tree: tree.board["templating"]["list"].pop(1)),
    ("schemaVersion", lambda tree: tree.board.update(schemaVersion=16)),
]


def check_tree(tree):
    yield from check_rules(tree.rules, tree.facts)
    yield from check_dashboard(tree.board, tree.facts)


def mutate(tree):
    """How many faults were not found."""
    missed = 0
    for expected, change in MUTATIONS:
        mutant = copy.deepcopy(tree)
        change(mutant)
        complaints = list(check_tree(mutant))
        if not any(expected in complaint for complaint in complaints):
            print(f"MISSED: '{expected}'; found instead: {complaints or 'nothing'}")
            missed += 1
    if not list(check_layout(json.dumps(tree.board, indent=4) + "\n")):
        print("MISSED: another layout")
        missed += 1
    return missed


def promtool(path):
    program = shutil.which("promtool")
    if not program:
        print("no promtool: whether Prometheus takes the rules is known from the parser here only")
        return 0
    done = subprocess.run([program, "check", "rules", str(path)], capture_output=True, text=True)
    print((done.stdout + done.stderr).strip())
    return done.returncode


def main(root):
    if not yaml:
        print("no PyYAML (Debian: python3-yaml): not checked")
        return SKIPPED
    alerts, dashboard = root / "etc/alerts.yaml", root / "etc/dashboard.json"
    text = dashboard.read_text()
    tree = Tree(read_facts(root), yaml.safe_load(alerts.read_text()), json.loads(text))
    complaints = [*check_tree(tree), *(f"{dashboard.name}: {complaint}" for complaint in check_layout(text))]
    for complaint in complaints:
        print(f"FAILED: {complaint}")
    missed = 0 if complaints else mutate(tree)  # which changes what is right
    failed = promtool(alerts)
    n_rules = sum(len(group["rules"]) for group in tree.rules["groups"])
    print(
        f"{len(tree.facts.metrics)} metrics, {len(tree.facts.commands)} commands, {n_rules} rules, "
        f"{len(tree.board['panels'])} panels; {len(complaints)} complaints; "
        f"{missed} of {len(MUTATIONS) + 1} planted faults missed"
    )
    return 1 if complaints or missed or failed else 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--format":
        file = pathlib.Path(sys.argv[2])
        file.write_text(layout(json.loads(file.read_text())) + "\n")
    elif len(sys.argv) == 2:
        sys.exit(main(pathlib.Path(sys.argv[1])))
    else:
        sys.exit(__doc__)
