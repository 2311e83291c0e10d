/* SPDX-License-Identifier: MIT */
/* railmux-executor: the data plane of one GPU, or of all emulated GPUs of the host backend. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <event2/event.h>

#include "executor/executor.h"
#include "executor/link.h"
#include "railmux/railmux.h"
#include "util/log.h"
#include "util/parse.h"

#define MAIN_WORKERS_MAX 64u

struct arguments {
        const char *name;
        const char *socket;
        uint32_t n_gpus;
        uint32_t n_workers;
        uint32_t stall_ms;
        bool exit_with_daemon;
};

static const char usage[] =
        "usage: railmux-executor --name NAME --socket PATH [--gpus N] [--workers N] [--stall-ms N]\n"
        "                        [--exit-with-daemon] [--log-level LEVEL] [--version] [--help]\n"
        "\n"
        "Runs the collectives that railmuxd's clients ask for. railmuxd starts it; see railmux-executor(8).\n"
        "  --name NAME         'host': all emulated GPUs on CPU threads\n"
        "  --socket PATH       railmuxd's executor socket (<client socket>.exec)\n"
        "  --gpus N            emulated GPUs, 1..64 (default 8)\n"
        "  --workers N         worker threads, 0: one per CPU, at most 16 (default 0)\n"
        "  --stall-ms N        report a request that waits this long (default 500)\n"
        "  --exit-with-daemon  end when railmuxd ends\n"
        "  --log-level LEVEL   error, warning, notice, info or debug (default info)\n";

/* 0: go on; 1: done, exit status 0; negative: bad usage. */
static int parse_argv(int argc, char **argv, struct arguments *arguments) {
        enum { OPT_NAME = 1, OPT_SOCKET, OPT_GPUS, OPT_WORKERS, OPT_STALL, OPT_EXIT, OPT_LEVEL, OPT_VERSION, OPT_HELP };
        static const struct option options[] = {
                {"name", required_argument, NULL, OPT_NAME},
                {"socket", required_argument, NULL, OPT_SOCKET},
                {"gpus", required_argument, NULL, OPT_GPUS},
                {"workers", required_argument, NULL, OPT_WORKERS},
                {"stall-ms", required_argument, NULL, OPT_STALL},
                {"exit-with-daemon", no_argument, NULL, OPT_EXIT},
                {"log-level", required_argument, NULL, OPT_LEVEL},
                {"version", no_argument, NULL, OPT_VERSION},
                {"help", no_argument, NULL, OPT_HELP},
                {0},
        };
        int c, level;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
                uint32_t *number = NULL, min = 0, max = 0;

                switch (c) {
                case OPT_NAME:
                        arguments->name = optarg;
                        break;
                case OPT_SOCKET:
                        arguments->socket = optarg;
                        break;
                case OPT_GPUS:
                        number = &arguments->n_gpus, min = 1, max = 64;
                        break;
                case OPT_WORKERS:
                        number = &arguments->n_workers, min = 0, max = MAIN_WORKERS_MAX;
                        break;
                case OPT_STALL:
                        number = &arguments->stall_ms, min = 1, max = 86400000;
                        break;
                case OPT_EXIT:
                        arguments->exit_with_daemon = true;
                        break;
                case OPT_LEVEL:
                        level = log_level_parse(optarg);
                        if (level < 0) {
                                fprintf(stderr,
                                        "railmux-executor: --log-level '%s': allowed are error, warning, notice, "
                                        "info, debug\n",
                                        optarg);
                                return -EINVAL;
                        }
                        log_set_level(level);
                        break;
                case OPT_VERSION:
                        printf("railmux-executor %d.%d.%d\n", RMX_VERSION_MAJOR, RMX_VERSION_MINOR, RMX_VERSION_PATCH);
                        return 1;
                case OPT_HELP:
                        fputs(usage, stdout);
                        return 1;
                default:
                        fputs(usage, stderr);
                        return -EINVAL;
                }
                if (number && (parse_u32(optarg, number) || *number < min || *number > max)) {
                        fprintf(stderr, "railmux-executor: '%s' is no number in %u .. %u\n", optarg, min, max);
                        return -EINVAL;
                }
        }
        if (!arguments->name || !arguments->socket || optind < argc) {
                fputs(usage, stderr);
                return -EINVAL;
        }
        if (strcmp(arguments->name, "host")) {
                fprintf(stderr, "railmux-executor: --name '%s': only 'host' exists in this version\n", arguments->name);
                return -EINVAL;
        }
        if (!arguments->n_workers) {
                long n = sysconf(_SC_NPROCESSORS_ONLN);

                arguments->n_workers = n < 1 ? 1 : n > 16 ? 16 : (uint32_t)n;
        }
        return 0;
}

static void on_signal(evutil_socket_t signal, short what, void *userdata) {
        (void)signal;
        (void)what;
        link_drain(userdata);
}

static int run(struct executor *executor, const struct arguments *arguments) {
        const struct link_options options = {arguments->socket, arguments->name, arguments->exit_with_daemon};
        struct event *term_event = NULL, *int_event = NULL;
        struct event_base *base;
        struct link *link = NULL;
        int r = -ENOMEM;

        base = event_base_new();
        if (!base)
                return -ENOMEM;
        r = link_new(base, executor, &options, &link);
        if (r < 0)
                goto exit;
        term_event = evsignal_new(base, SIGTERM, on_signal, link);
        int_event = evsignal_new(base, SIGINT, on_signal, link);
        if (!term_event || !int_event || event_add(term_event, NULL) || event_add(int_event, NULL)) {
                r = -ENOMEM;
                goto exit;
        }
        event_base_dispatch(base);
        r = 0;
exit:
        if (term_event)
                event_free(term_event);
        if (int_event)
                event_free(int_event);
        link_free(link);
        event_base_free(base);
        return r;
}

int main(int argc, char **argv) {
        struct arguments arguments = {.n_gpus = 8, .stall_ms = 500};
        struct executor executor;
        int r;

        log_init("railmux-executor", LOG_LEVEL_INFO);
        r = parse_argv(argc, argv, &arguments);
        if (r)
                return r < 0 ? 2 : 0;
        signal(SIGPIPE, SIG_IGN);
        if (arguments.exit_with_daemon)
                prctl(PR_SET_PDEATHSIG, SIGKILL);
        r = executor_init(&executor, &gpu_host_ops, arguments.n_gpus, arguments.n_workers,
                          (uint64_t)arguments.stall_ms * 1000000u);
        if (r >= 0) {
                log_info("executor %s: %u emulated GPUs, %u workers", arguments.name, arguments.n_gpus,
                         arguments.n_workers);
                r = run(&executor, &arguments);
        }
        if (r < 0)
                log_error("executor %s: %s", arguments.name, strerror(-r));
        if (r >= 0 && !executor_quiet(&executor)) {
                /* Requests are still in flight (the drain's bound passed). Ending like a crash lets the successor
                 * declare them lost; tearing down would answer them with a sticky error. */
                log_warning("executor %s: ends with requests in flight; they will be reported as lost", arguments.name);
                _exit(0);
        }
        executor_deinit(&executor);
        return r < 0 ? 1 : 0;
}
