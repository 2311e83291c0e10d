/* SPDX-License-Identifier: MIT */
/* railmuxctl: ask railmuxd one thing and show the answer. */
#include "proto/frame.h"
#include "railmux/railmux.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/graph.h"
#include "tools/ctl/json.h"
#include "tools/ctl/show.h"
#include "util/result.h"
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_CONTROL "/run/railmux/control.sock"
#define TIMEOUT_MS      10000
#define USAGE_TEXT      1024
#define DRAIN_MS        45000 /* above railmuxd's own bound */

enum {
        EXIT_REFUSED = 1, /* railmuxd says no, something was lost, or a file cannot be read or written */
        EXIT_USAGE = 2,
        EXIT_UNREACHABLE = 3, /* no railmuxd, or no answer */
};

static const char help[] =
        "railmuxctl [OPTIONS] COMMAND\n"
        "\n"
        "Looks into railmuxd and steers it.\n"
        "\n"
        "  status           is everything well; executors; what needs attention\n"
        "  tenants          what each tenant holds, and its limits\n"
        "  sessions         connected client processes\n"
        "  comms [--ranks]  communicators, their ranks' last sequences, whom they wait for\n"
        "  gpus             GPUs and their executors\n"
        "  peers            daemons of other nodes, and how they are reached\n"
        "  rails            addresses that carry what goes to other nodes\n"
        "  routes           which of them reach which node, and how well\n"
        "  topology         this machine as a graph: what hangs on what, links, rails\n"
        "  metrics          counters in Prometheus' text format\n"
        "  version          versions of program, daemon and protocols\n"
        "  drain EXECUTOR   replace an executor, named as status shows it; communicators go on\n"
        "  drain-rail RAIL, undrain-rail RAIL\n"
        "                   let other rails carry what this one does; take that back\n"
        "  reload           read the configuration again\n"
        "  log-level LEVEL  error, warning, notice, info or debug, until the next reload\n"
        "\n"
        "  --control PATH   control socket (default $RAILMUX_CONTROL, else " DEFAULT_CONTROL ")\n"
        "  --json           one JSON document instead of a table\n"
        "  --ranks          comms: a line for every rank\n"
        "  --from FILE      topology: of a file (railmux' or hwloc's XML); nobody is asked\n"
        "  --here           topology: as railmuxctl itself sees this machine; nobody is asked\n"
        "  --xml FILE       topology: write it as XML instead (-: standard output)\n"
        "  --svg FILE       topology: draw it with Graphviz\n"
        "  --dot            topology: what Graphviz draws from\n"
        "  --version        print the version of railmuxctl\n"
        "  --help           print this\n"
        "\n"
        "Exit status: 0 done; 1 refused by railmuxd, communicators were lost, or a file cannot be read "
        "or written; 2 wrong usage; 3 railmuxd cannot be reached.\n";

static const struct command {
        const char *name;
        const char *key; /* of the JSON document, NULL: the name */
        Railmux__Control__Request__BodyCase body;
        int (*show)(const struct answer *answer, const struct show_options *options, FILE *out);
        json_t *(*json)(const struct answer *answer);
        const char *argument; /* what it stands for; NULL: none */
} commands[] = {
        {"status", NULL, RAILMUX__CONTROL__REQUEST__BODY_STATUS, show_status, json_status, NULL},
        {"tenants", NULL, RAILMUX__CONTROL__REQUEST__BODY_TENANTS, show_tenants, json_tenants, NULL},
        {"sessions", NULL, RAILMUX__CONTROL__REQUEST__BODY_SESSIONS, show_sessions, json_sessions, NULL},
        {"comms", NULL, RAILMUX__CONTROL__REQUEST__BODY_COMMS, show_comms, json_comms, NULL},
        {"gpus", NULL, RAILMUX__CONTROL__REQUEST__BODY_GPUS, show_gpus, json_gpus, NULL},
        {"peers", NULL, RAILMUX__CONTROL__REQUEST__BODY_PEERS, show_peers, json_peers, NULL},
        {"rails", NULL, RAILMUX__CONTROL__REQUEST__BODY_RAILS, show_rails, json_rails, NULL},
        {"routes", NULL, RAILMUX__CONTROL__REQUEST__BODY_ROUTES, show_routes, json_routes, NULL},
        {"topology", NULL, RAILMUX__CONTROL__REQUEST__BODY_TOPOLOGY, show_topology, json_topology, NULL},
        {"metrics", NULL, RAILMUX__CONTROL__REQUEST__BODY_METRICS, show_metrics, json_metrics, NULL},
        {"version", "versions", RAILMUX__CONTROL__REQUEST__BODY_GET_VERSION, show_version, json_version, NULL},
        {"drain", NULL, RAILMUX__CONTROL__REQUEST__BODY_DRAIN, show_drain, json_drain, "EXECUTOR"},
        {"drain-rail", "drain_rail", RAILMUX__CONTROL__REQUEST__BODY_RAIL_DRAIN, NULL, NULL, "RAIL"},
        {"undrain-rail", "undrain_rail", RAILMUX__CONTROL__REQUEST__BODY_RAIL_DRAIN, NULL, NULL, "RAIL"},
        {"reload", NULL, RAILMUX__CONTROL__REQUEST__BODY_RELOAD, show_reload, json_reload, NULL},
        {"log-level", "log_level", RAILMUX__CONTROL__REQUEST__BODY_LOG_LEVEL, NULL, NULL, "LEVEL"},
};

struct invocation {
        const struct command *command;
        char *argument;
        const char *control;
        bool json, help, version;
        bool dot, here;
        const char *from, *xml, *svg; /* files */
        struct show_options show;
};

/* main() says what could not be written. */
static int print_document(const char *name, json_t *body) {
        json_t *document = json_object();
        int r = 1;

        if (document && body && json_object_set_new(document, "version", json_integer(SHOW_JSON_VERSION)) == 0 &&
            json_object_set(document, name, body) == 0 &&
            (json_dumpf(document, stdout, JSON_INDENT(2)) == 0 || ferror(stdout)))
                r = 0;
        if (!r)
                putchar('\n');
        else
                fprintf(stderr, "railmuxctl: out of memory\n");
        json_decref(document);
        json_decref(body);
        return r ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Messages name paths and words of the command line, which may be any bytes. */
static void print_failure(const char *code, const char *message) {
        print_document("error",
                       json_with(json_with(json_object(), "code", json_text(code)), "message", json_text(message)));
}

static int fail(const struct invocation *invocation, int status, const char *code, const char *message) {
        fprintf(stderr, "railmuxctl: %s\n", message);
        if (invocation->json)
                print_failure(code, message);
        return status;
}

static int usage(const struct invocation *invocation, const char *what, const char *why) {
        char message[USAGE_TEXT];

        snprintf(message, sizeof(message), "%s: %s (see --help)", what, why);
        return fail(invocation, EXIT_USAGE, "RMX_E_INVALID", message);
}

/* All commands. */
static const char *list_commands(char list[USAGE_TEXT]) {
        size_t length = (size_t)snprintf(list, USAGE_TEXT, "commands are");

        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]) && length < USAGE_TEXT; i++)
                length +=
                        (size_t)snprintf(list + length, USAGE_TEXT - length, "%s%s", i ? ", " : " ", commands[i].name);
        return list;
}

/* What only some commands have, and one form of output at a time. */
static int check_options(const struct invocation *invocation) {
        int forms = invocation->json + invocation->dot + !!invocation->xml + !!invocation->svg;

        if (invocation->show.ranks && invocation->command->body != RAILMUX__CONTROL__REQUEST__BODY_COMMS)
                return usage(invocation, invocation->command->name, "--ranks belongs to comms");
        if (invocation->command->body != RAILMUX__CONTROL__REQUEST__BODY_TOPOLOGY)
                return invocation->dot || invocation->here || invocation->from || invocation->xml || invocation->svg
                               ? usage(invocation, invocation->command->name,
                                       "--from, --here, --xml, --svg and --dot belong to topology")
                               : 0;
        if (forms > 1)
                return usage(invocation, "topology", "only one of --json, --xml, --svg and --dot");
        return invocation->here && invocation->from ? usage(invocation, "topology", "only one of --from and --here")
                                                    : 0;
}

static int parse_argv(struct invocation *invocation, int argc, char **argv) {
        enum {
                OPT_CONTROL = 256,
                OPT_JSON,
                OPT_RANKS,
                OPT_FROM,
                OPT_HERE,
                OPT_XML,
                OPT_SVG,
                OPT_DOT,
                OPT_VERSION,
                OPT_HELP
        };
        static const struct option table[] = {
                {"control", required_argument, NULL, OPT_CONTROL},
                {"json", no_argument, NULL, OPT_JSON},
                {"ranks", no_argument, NULL, OPT_RANKS},
                {"from", required_argument, NULL, OPT_FROM},
                {"here", no_argument, NULL, OPT_HERE},
                {"xml", required_argument, NULL, OPT_XML},
                {"svg", required_argument, NULL, OPT_SVG},
                {"dot", no_argument, NULL, OPT_DOT},
                {"version", no_argument, NULL, OPT_VERSION},
                {"help", no_argument, NULL, OPT_HELP},
                {NULL, 0, NULL, 0},
        };
        const char *environment = getenv("RAILMUX_CONTROL");
        char list[USAGE_TEXT];
        int c;

        *invocation = (struct invocation){.control = environment && *environment ? environment : DEFAULT_CONTROL};
        for (int i = 1; i < argc; i++) /* also for what is wrong before it */
                invocation->json = invocation->json || strcmp(argv[i], "--json") == 0;
        opterr = 0;
        while ((c = getopt_long(argc, argv, "", table, NULL)) >= 0) {
                switch (c) {
                case OPT_CONTROL:
                        invocation->control = optarg;
                        break;
                case OPT_JSON:
                        invocation->json = true;
                        break;
                case OPT_RANKS:
                        invocation->show.ranks = true;
                        break;
                case OPT_FROM:
                        invocation->from = optarg;
                        break;
                case OPT_HERE:
                        invocation->here = true;
                        break;
                case OPT_XML:
                        invocation->xml = optarg;
                        break;
                case OPT_SVG:
                        invocation->svg = optarg;
                        break;
                case OPT_DOT:
                        invocation->dot = true;
                        break;
                case OPT_VERSION:
                        invocation->version = true;
                        return 0;
                case OPT_HELP:
                        invocation->help = true;
                        return 0;
                default:
                        return usage(invocation, argv[optind - 1], "unknown option, or its value is missing");
                }
        }
        if (optind == argc)
                return usage(invocation, "a command is missing", list_commands(list));
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
                if (strcmp(argv[optind], commands[i].name) == 0)
                        invocation->command = &commands[i];
        if (!invocation->command)
                return usage(invocation, argv[optind], list_commands(list));
        optind++;
        if (invocation->command->argument) {
                if (optind == argc) {
                        snprintf(list, sizeof(list), "%s is missing", invocation->command->argument);
                        return usage(invocation, invocation->command->name, list);
                }
                invocation->argument = argv[optind++];
        }
        if (optind < argc)
                return usage(invocation, argv[optind], "one argument too many");
        return check_options(invocation);
}

static int show(const struct invocation *invocation, const struct answer *answer) {
        const struct command *command = invocation->command;
        int r;

        if (!command->show)
                return invocation->json ? print_document(command->key ? command->key : command->name,
                                                         json_pack("{s:b}", "done", 1))
                                        : EXIT_SUCCESS;
        if (invocation->json)
                return print_document(command->key ? command->key : command->name, command->json(answer));
        r = command->show(answer, &invocation->show, stdout);
        if (r < 0)
                return fail(invocation, EXIT_UNREACHABLE, "RMX_E_INTERNAL", strerror(-r));
        return EXIT_SUCCESS;
}

/* answer has a graph. */
static int put_graph(const struct invocation *invocation, const struct answer *answer) {
        char error[ANSWER_ERROR_MAX] = "out of memory";
        int r = 0;

        if (invocation->xml)
                r = graph_to_xml(answer, invocation->xml, error);
        else if (invocation->svg)
                r = graph_to_svg(answer, invocation->svg, error);
        else if (invocation->dot)
                graph_to_dot(answer, stdout); /* main() says what could not be written */
        else
                return show(invocation, answer);
        return r ? fail(invocation, EXIT_REFUSED, "RMX_E_INTERNAL", error) : EXIT_SUCCESS;
}

static int run_alone(const struct invocation *invocation) {
        struct answer answer = ANSWER_INIT;
        char error[ANSWER_ERROR_MAX] = "out of memory";
        int r = invocation->here ? graph_of_here(&answer, error) : graph_of_file(&answer, invocation->from, error);

        r = r ? fail(invocation, EXIT_REFUSED,
                     r == -EINVAL ? "RMX_E_INVALID"
                     : r == -EIO  ? "RMX_E_INTERNAL"
                                  : "RMX_E_NO_MEMORY",
                     error)
              : put_graph(invocation, &answer);
        answer_deinit(&answer);
        return r;
}

static int run(const struct invocation *invocation) {
        Railmux__Control__Request request = RAILMUX__CONTROL__REQUEST__INIT;
        Railmux__Control__LogLevel level = RAILMUX__CONTROL__LOG_LEVEL__INIT;
        Railmux__Control__Drain drain = RAILMUX__CONTROL__DRAIN__INIT;
        Railmux__Control__RailDrain rail_drain = RAILMUX__CONTROL__RAIL_DRAIN__INIT;
        Railmux__Control__Empty empty = RAILMUX__CONTROL__EMPTY__INIT;
        struct answer answer = ANSWER_INIT;
        char error[ANSWER_ERROR_MAX] = "out of memory";
        bool drains = invocation->command->body == RAILMUX__CONTROL__REQUEST__BODY_DRAIN;
        int r;

        request.version = CONTROL_PROTOCOL;
        request.body_case = invocation->command->body;
        if (drains) {
                drain.executor = invocation->argument;
                request.drain = &drain;
        } else if (request.body_case == RAILMUX__CONTROL__REQUEST__BODY_RAIL_DRAIN) {
                rail_drain.rail = invocation->argument;
                rail_drain.undo = invocation->command->name[0] == 'u';
                request.rail_drain = &rail_drain;
        } else if (invocation->argument) {
                level.level = invocation->argument;
                request.log_level = &level;
        } else {
                request.status = &empty; /* all the others are empty, at the same place of the union */
        }
        r = answer_ask(invocation->control, &request, drains ? DRAIN_MS : TIMEOUT_MS, &answer, error);
        if (r)
                return fail(invocation, EXIT_UNREACHABLE,
                            r == ANSWER_E_NO_DAEMON ? "RMX_E_NO_DAEMON" : "RMX_E_INTERNAL", error);
        if (answer.code)
                r = fail(invocation, EXIT_REFUSED, result_name(answer.code), answer.message);
        else if (invocation->command->body == RAILMUX__CONTROL__REQUEST__BODY_TOPOLOGY)
                r = graph_of_daemon(&answer, error) ? fail(invocation, EXIT_UNREACHABLE, "RMX_E_INTERNAL", error)
                                                    : put_graph(invocation, &answer);
        else
                r = show(invocation, &answer);
        if (!r && answer.drained && answer.drained->lost)
                r = EXIT_REFUSED;
        answer_deinit(&answer);
        return r;
}

int main(int argc, char **argv) {
        struct invocation invocation;
        bool failed;
        int r;

        r = parse_argv(&invocation, argc, argv);
        if (r) {
                /* it has said what is wrong */
        } else if (invocation.help) {
                fputs(help, stdout);
        } else if (invocation.version) {
                printf("railmuxctl %d.%d.%d\n", RMX_VERSION_MAJOR, RMX_VERSION_MINOR, RMX_VERSION_PATCH);
        } else {
                r = invocation.from || invocation.here ? run_alone(&invocation) : run(&invocation);
        }
        failed = ferror(stdout) != 0;
        errno = 0;
        if (fflush(stdout) != 0 || failed) {
                fprintf(stderr, "railmuxctl: cannot write to standard output: %s\n", strerror(errno ? errno : EIO));
                r = r == EXIT_SUCCESS ? EXIT_REFUSED : r;
        }
        return r;
}
