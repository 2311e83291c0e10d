/* SPDX-License-Identifier: MIT */
/*
 * The scenarios, as a program for the guest of rxe-vm: vm_scenarios TRANSPORT [NAME...]. Without names one of each
 * kind (collectives, faults, losses, strangers) out of the short list, by the seed; with RAILMUX_VM=all all of that
 * list, with RAILMUX_FULL=1 all that the guest has nodes and rails for. Daemons speak TLS in about half of them, by the
 * seed; with RAILMUX_VM_TLS=yes in all, no in none but those that are about it. Not those of eight nodes and four
 * rails: two emulated processors take seconds for 112 handshakes at once, and nodes count as lost meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cmocka_all.h"
#include "tests/e2e/proc.h"
#include "tests/vm/fleet.h"
#include "tests/vm/scenario.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct scenario short_list[] = {
        {"collectives-2x2", collectives_run, 0, 2, 2, 4},
        {"collectives-3x1", collectives_run, 5, 3, 1, 5},
        {"collectives-4x2", collectives_run, 5, 4, 2, 4},
        {"down-2x2", faults_run, FAULT_DOWN, 2, 2, 4},
        {"drop-3x2", faults_run, FAULT_DROP, 3, 2, 3},
        {"flap-2x2", faults_run, FAULT_FLAP, 2, 2, 2},
        {"still-2x2", faults_run, FAULT_STILL, 2, 2, 4},
        {"loss-2x2", faults_run, FAULT_LOSS, 2, 2, 2},
        {"delay-3x2", faults_run, FAULT_DELAY, 3, 2, 3},
        {"last-rail-2x1", losses_run, LOSS_RAILS, 2, 1, 4},
        {"last-rails-silent-3x2", losses_run, LOSS_DROP, 3, 2, 3},
        {"node-killed-3x2", losses_run, LOSS_KILL, 3, 2, 6},
        {"node-silent-2x1", losses_run, LOSS_SILENT, 2, 1, 4},
        {"strangers-4x1", strangers_run, 0, 4, 1, 2},
};

static const struct scenario long_list[] = {
        {"collectives-2x1", collectives_run, 0, 2, 1, 5},      {"collectives-3x2", collectives_run, 0, 3, 2, 6},
        {"collectives-4x1", collectives_run, 0, 4, 1, 8},      {"collectives-8x4", collectives_run, 0, 8, 4, 8},
        {"down-3x2", faults_run, FAULT_DOWN, 3, 2, 6},         {"down-4x2", faults_run, FAULT_DOWN, 4, 2, 4},
        {"down-8x4", faults_run, FAULT_DOWN, 8, 4, 8},         {"drop-2x2", faults_run, FAULT_DROP, 2, 2, 4},
        {"drop-4x2", faults_run, FAULT_DROP, 4, 2, 4},         {"drop-8x4", faults_run, FAULT_DROP, 8, 4, 8},
        {"flap-3x2", faults_run, FAULT_FLAP, 3, 2, 3},         {"flap-4x2", faults_run, FAULT_FLAP, 4, 2, 8},
        {"loss-2x1", faults_run, FAULT_LOSS, 2, 1, 4},         {"loss-4x2", faults_run, FAULT_LOSS, 4, 2, 4},
        {"delay-2x1", faults_run, FAULT_DELAY, 2, 1, 4},       {"delay-4x2", faults_run, FAULT_DELAY, 4, 2, 8},
        {"last-rail-3x1", losses_run, LOSS_RAILS, 3, 1, 6},    {"last-rails-4x2", losses_run, LOSS_RAILS, 4, 2, 4},
        {"last-rails-8x4", losses_run, LOSS_RAILS, 8, 4, 8},   {"node-killed-2x1", losses_run, LOSS_KILL, 2, 1, 2},
        {"node-killed-4x2", losses_run, LOSS_KILL, 4, 2, 8},   {"node-killed-8x4", losses_run, LOSS_KILL, 8, 4, 8},
        {"node-silent-4x2", losses_run, LOSS_SILENT, 4, 2, 4},
};

#define SCENARIOS_MAX (COUNT_OF(short_list) + COUNT_OF(long_list))

/* What a scenario gets, since cmocka hands a test one pointer. */
struct trial {
        const struct scenario *scenario;
        const char *transport;
        struct fleet *fleet;
};

/* By lot, another one for each scenario, unless RAILMUX_VM_TLS says. */
static enum fleet_security security_of(const struct scenario *scenario) {
        const char *text = getenv("RAILMUX_VM_TLS");
        uint64_t random = proc_seed();

        if ((!text || !*text) && scenario->n_nodes >= 8)
                return FLEET_PLAIN;
        if (text && *text)
                return strcmp(text, "yes") == 0 ? FLEET_TLS : FLEET_PLAIN;
        for (const char *c = scenario->name; *c; c++)
                random ^= (uint64_t)(unsigned char)*c << (c - scenario->name) % 8 * 8;
        return proc_random(&random) % 2 ? FLEET_TLS : FLEET_PLAIN;
}

static int begin(void **state) {
        struct trial *trial = *state;
        struct fleet *fleet = calloc(1, sizeof(*fleet));

        assert_non_null(fleet);
        fleet->n_nodes = trial->scenario->n_nodes;
        fleet->n_rails = trial->scenario->n_rails;
        fleet->transport = trial->transport;
        fleet->name = trial->scenario->name;
        fleet->random = proc_seed();
        fleet->security = security_of(trial->scenario);
        trial->fleet = fleet;
        return 0;
}

static void try_it(void **state) {
        struct trial *trial = *state;

        trial->scenario->run(trial->fleet, trial->scenario);
}

static int end(void **state) {
        struct trial *trial = *state;

        fleet_cleanup(trial->fleet);
        free(trial->fleet);
        trial->fleet = NULL;
        return 0;
}

static uint32_t guest_has(const char *variable) {
        const char *text = getenv(variable);

        return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

struct selection {
        struct trial trial[SCENARIOS_MAX];
        struct CMUnitTest test[SCENARIOS_MAX];
        size_t n;
};

static void take(struct selection *s, const struct scenario *scenario, const char *transport) {
        s->trial[s->n] = (struct trial){.scenario = scenario, .transport = transport};
        s->test[s->n] = (struct CMUnitTest){.name = scenario->name,
                                            .test_func = try_it,
                                            .setup_func = begin,
                                            .teardown_func = end,
                                            .initial_state = &s->trial[s->n]};
        s->n++;
}

static void choose(struct selection *s, const struct scenario *list, size_t n, int argc, char **argv) {
        for (size_t i = 0; i < n; i++) {
                bool wanted = argc == 2 && list[i].n_nodes <= guest_has("VM_NODES") &&
                              list[i].n_rails <= guest_has("VM_RAILS");

                for (int a = 2; a < argc; a++)
                        wanted |= strcmp(argv[a], list[i].name) == 0;
                if (wanted)
                        take(s, &list[i], argv[1]);
        }
}

/* One of those that call the same function. */
static void choose_one(struct selection *s, void (*run)(struct fleet *fleet, const struct scenario *scenario),
                       const char *transport, uint64_t random) {
        size_t n = 0, left;

        for (size_t i = 0; i < COUNT_OF(short_list); i++)
                n += short_list[i].run == run;
        left = random % n;
        for (size_t i = 0; i < COUNT_OF(short_list); i++)
                if (short_list[i].run == run && left-- == 0)
                        take(s, &short_list[i], transport);
}

static bool wants_all(void) {
        const char *text = getenv("RAILMUX_VM");

        return proc_full() || (text && strcmp(text, "all") == 0);
}

int main(int argc, char **argv) {
        struct selection s = {.n = 0};
        uint64_t random = proc_seed();

        if (argc < 2 || !guest_has("VM_NODES")) {
                fprintf(stderr, "Usage: vm_scenarios TRANSPORT [NAME...], in the guest of tests/vm/rxe-vm\n");
                return 2;
        }
        if (argc == 2 && !wants_all()) {
                choose_one(&s, collectives_run, argv[1], random);
                choose_one(&s, faults_run, argv[1], random / 16);
                choose_one(&s, losses_run, argv[1], random / 256);
                choose_one(&s, strangers_run, argv[1], random / 4096);
        } else {
                choose(&s, short_list, COUNT_OF(short_list), argc, argv);
        }
        if (argc > 2 || proc_full())
                choose(&s, long_list, COUNT_OF(long_list), argc, argv);
        if (s.n == 0 || (argc > 2 && s.n != (size_t)argc - 2)) {
                fprintf(stderr, "vm_scenarios: not all of these scenarios are known\n");
                return 2;
        }
        return _cmocka_run_group_tests("vm", s.test, s.n, NULL, NULL);
}
