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

#include "executor/argument_file.h"
#include "executor/executor.h"
#include "executor/host_service.h"
#include "executor/link.h"
#include "executor/plane_executor.h"
#include "executor/plane_plugin.h"
#include "executor/probe.h"
#include "railmux/railmux.h"
#include "util/fds.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/processors.h"

#define MAIN_WORKERS_MAX 64u
#define MAIN_WORKERS     16u   /* at most where nobody says how many */
#define MAIN_FDS         4096u /* there is room for from the beginning; a communicator over nodes has three */

struct arguments {
        const char *name;
        const char *socket;
        uint32_t n_gpus;
        uint32_t n_workers;
        uint32_t stall_ms;
        uint32_t staging_mib;
        bool exit_with_daemon;
        bool probe;
        bool has_device;
        const char *file;    /* more arguments */
        const char *backend; /* plug-in */
        uint32_t gpu;        /* what the name says */
        struct plane_options plane;
};

static const char usage[] =
        "usage: railmux-executor --name NAME --socket PATH [--gpus N] [--workers N] [--stall-ms N]\n"
        "                        [--exit-with-daemon] [--log-level LEVEL] [--version] [--help]\n"
        "       railmux-executor --name N --socket PATH [--backend NAME] [--device D] [--policy POLICY] [--blocks N]\n"
        "                        [--staging-mib N] ...\n"
        "       railmux-executor --probe [--backend NAME]\n"
        "\n"
        "Runs the collectives that railmuxd's clients ask for. railmuxd starts it; see railmux-executor(8).\n"
        "  --name NAME         'host': all emulated GPUs on CPU threads; a number: the GPU that has it for clients\n"
        "  --socket PATH       railmuxd's executor socket (<client socket>.exec)\n"
        "  --gpus N            emulated GPUs, 1..64 (default 8)\n"
        "  --backend NAME      plug-in for the GPU, or its path (default hip)\n"
        "  --device D          which of the runtime's devices (default: as the name)\n"
        "  --policy POLICY     resident kernels: latency, shared or adaptive (default adaptive)\n"
        "  --blocks N          resident blocks, 0: as the policy says (default 0)\n"
        "  --staging-mib N     MiB of the GPU's memory for staging, 0: 256, or less if little is free (default 0)\n"
        "  --probe             print the GPUs that could be served as JSON; exit status 0, 3: none, 4: a problem\n"
        "  --arguments FILE    more of these, which win: a line NAME=ARGUMENTS, blanks between; may not exist\n"
        "  --workers N         worker threads, 0: one per CPU, at most 16 (default 0)\n"
        "  --stall-ms N        report a request that waits this long (default 500)\n"
        "  --exit-with-daemon  end when railmuxd ends\n"
        "  --log-level LEVEL   error, warning, notice, info or debug (default info)\n";

static int parse_policy(const char *text, uint32_t *ret_policy) {
        static const char *const names[] = {
                [PLANE_ADAPTIVE] = "adaptive", [PLANE_SHARED] = "shared", [PLANE_LATENCY] = "latency"};

        for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                if (strcmp(text, names[i]) == 0) {
                        *ret_policy = i;
                        return 0;
                }
        }
        fprintf(stderr, "railmux-executor: --policy '%s': allowed are latency, shared, adaptive\n", text);
        return -EINVAL;
}

/* What the name means, and what follows from it. */
static int parse_name(struct arguments *arguments) {
        if (strcmp(arguments->name, "host") == 0) {
                arguments->backend = NULL;
                return 0;
        }
        if (parse_u32(arguments->name, &arguments->gpu) || arguments->gpu >= PLANE_GPUS_MAX) {
                fprintf(stderr, "railmux-executor: --name '%s': 'host' or the number of a GPU, 0 .. %u\n",
                        arguments->name, PLANE_GPUS_MAX - 1);
                return -EINVAL;
        }
        if (!arguments->backend)
                arguments->backend = "hip";
        if (!arguments->has_device)
                arguments->plane.device = arguments->gpu;
        return 0;
}

/* 0: go on; 1: done, exit status 0; negative: bad usage. `given`: by a file and not by who started us. */
static int parse_options(int argc, char **argv, bool given, struct arguments *arguments) {
        enum {
                OPT_NAME = 1,
                OPT_SOCKET,
                OPT_GPUS,
                OPT_WORKERS,
                OPT_STALL,
                OPT_EXIT,
                OPT_LEVEL,
                OPT_BACKEND,
                OPT_DEVICE,
                OPT_POLICY,
                OPT_BLOCKS,
                OPT_STAGING,
                OPT_PROBE,
                OPT_ARGUMENTS,
                OPT_VERSION,
                OPT_HELP
        };
        static const struct option options[] = {
                {"name", required_argument, NULL, OPT_NAME},
                {"socket", required_argument, NULL, OPT_SOCKET},
                {"gpus", required_argument, NULL, OPT_GPUS},
                {"workers", required_argument, NULL, OPT_WORKERS},
                {"stall-ms", required_argument, NULL, OPT_STALL},
                {"exit-with-daemon", no_argument, NULL, OPT_EXIT},
                {"log-level", required_argument, NULL, OPT_LEVEL},
                {"backend", required_argument, NULL, OPT_BACKEND},
                {"device", required_argument, NULL, OPT_DEVICE},
                {"policy", required_argument, NULL, OPT_POLICY},
                {"blocks", required_argument, NULL, OPT_BLOCKS},
                {"staging-mib", required_argument, NULL, OPT_STAGING},
                {"probe", no_argument, NULL, OPT_PROBE},
                {"arguments", required_argument, NULL, OPT_ARGUMENTS},
                {"version", no_argument, NULL, OPT_VERSION},
                {"help", no_argument, NULL, OPT_HELP},
                {0},
        };
        int c, level, which = 0;

        optind = 0; /* begin anew */
        while ((c = getopt_long(argc, argv, "", options, &which)) >= 0) {
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
                case OPT_BACKEND:
                        if (given && strchr(optarg, '/')) {
                                fprintf(stderr, "railmux-executor: --backend '%s': a file may not say a path\n",
                                        optarg);
                                return -EINVAL;
                        }
                        arguments->backend = optarg;
                        break;
                case OPT_DEVICE:
                        number = &arguments->plane.device, min = 0, max = PLANE_GPUS_MAX - 1;
                        arguments->has_device = true;
                        break;
                case OPT_POLICY:
                        if (parse_policy(optarg, &arguments->plane.policy) < 0)
                                return -EINVAL;
                        break;
                case OPT_BLOCKS:
                        number = &arguments->plane.blocks, min = 0, max = 1024;
                        break;
                case OPT_STAGING:
                        number = &arguments->staging_mib, min = 0, max = 65536;
                        break;
                case OPT_PROBE:
                        arguments->probe = true;
                        break;
                case OPT_ARGUMENTS:
                        arguments->file = given ? arguments->file : optarg;
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
                        fprintf(stderr, "railmux-executor: --%s '%s': allowed are numbers from %u to %u\n",
                                options[which].name, optarg, min, max);
                        return -EINVAL;
                }
        }
        if (optind < argc)
                fputs(usage, stderr);
        return optind < argc ? -EINVAL : 0;
}

static int parse_file(struct arguments *arguments) {
        static struct argument_file file; /* for as long as the arguments */
        int r;

        r = argument_file_read(&file, arguments->file);
        if (r < 0) {
                fprintf(stderr, "railmux-executor: --arguments '%s': %s\n", arguments->file, strerror(-r));
                return r;
        }
        return parse_options(file.argc, file.argv, true, arguments);
}

static int parse_argv(int argc, char **argv, struct arguments *arguments) {
        int r;

        r = parse_options(argc, argv, false, arguments);
        if (!r && arguments->file)
                r = parse_file(arguments);
        if (r || arguments->probe)
                return r;
        arguments->plane.pool_bytes = (uint64_t)arguments->staging_mib << 20;
        if (!arguments->name || !arguments->socket) {
                fputs(usage, stderr);
                return -EINVAL;
        }
        if (parse_name(arguments) < 0)
                return -EINVAL;
        if (!arguments->n_workers) {
                const uint32_t n = processors_usable();

                arguments->n_workers = n > MAIN_WORKERS ? MAIN_WORKERS : n;
        }
        return 0;
}

static void on_signal(evutil_socket_t signal, short what, void *userdata) {
        (void)signal;
        (void)what;
        link_drain(userdata);
}

/* What asks it to end is heard in the loop, and once: afterwards it is ending, and must not be cut short with a kernel
 * running. (libevent puts back what was there before. What comes in between is blocked, and therefore kept.) */
static int watch_signals(struct event *term_event, struct event *int_event) {
        sigset_t ends, before;
        int r;

        sigemptyset(&ends);
        sigaddset(&ends, SIGTERM);
        sigaddset(&ends, SIGINT);
        sigprocmask(SIG_BLOCK, &ends, &before);
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        r = event_add(term_event, NULL) || event_add(int_event, NULL) ? -ENOMEM : 0;
        sigprocmask(SIG_SETMASK, &before, NULL);
        return r;
}

/* Until railmuxd or a signal ends it: 0, or -errno of what cannot be gone on with. */
static int run(const struct link_service *service, const struct arguments *arguments) {
        const struct link_options options = {arguments->socket, arguments->name, arguments->exit_with_daemon};
        struct event *term_event = NULL, *int_event = NULL;
        struct event_base *base;
        struct link *link = NULL;
        int r = -ENOMEM;

        base = event_base_new();
        if (!base)
                return -ENOMEM;
        r = link_new(base, service, &options, &link);
        if (r < 0)
                goto exit;
        term_event = evsignal_new(base, SIGTERM, on_signal, link);
        int_event = evsignal_new(base, SIGINT, on_signal, link);
        if (!term_event || !int_event || watch_signals(term_event, int_event) < 0) {
                r = -ENOMEM;
                goto exit;
        }
        event_base_dispatch(base);
        r = link_result(link);
exit:
        if (term_event)
                event_free(term_event);
        if (int_event)
                event_free(int_event);
        link_free(link);
        event_base_free(base);
        return r;
}

static int run_host(const struct arguments *arguments) {
        static struct host_service host;
        struct executor executor;
        int r;

        r = executor_init(&executor, &gpu_host_ops, arguments->n_gpus, arguments->n_workers,
                          (uint64_t)arguments->stall_ms * 1000000u);
        if (r >= 0) {
                log_info("executor %s: %u emulated GPUs, %u workers", arguments->name, arguments->n_gpus,
                         arguments->n_workers);
                host_service_init(&host, &executor);
                r = run(&host.service, arguments);
        }
        if (r < 0)
                log_error("executor %s: %s", arguments->name, strerror(-r));
        if (r >= 0 && !executor_quiet(&executor)) {
                /* Requests are still in flight (the drain's bound passed). Ending like a crash lets the successor
                 * declare them lost; tearing down would answer them with a sticky error. */
                log_warning("executor %s: ends with requests in flight; they will be reported as lost",
                            arguments->name);
                _exit(0);
        }
        executor_deinit(&executor);
        return r;
}

/* Being killed while kernels run takes other processes' contexts along on some systems. So when our parent dies, and
 * with it whoever wants us, we are asked to end and not killed. */
static void soften_parent_death(void) {
        int signal_number = 0;

        if (prctl(PR_GET_PDEATHSIG, &signal_number) == 0 && signal_number)
                prctl(PR_SET_PDEATHSIG, SIGTERM);
}

static int run_plane(const struct arguments *arguments) {
        static struct plane_executor executor;
        const struct plane_ops *ops;
        char error[PLANE_TEXT] = "";
        int r;

        r = plane_plugin_load(arguments->backend, &ops, error);
        if (r) {
                log_error("executor %s: %s", arguments->name, error);
                return -ENOENT;
        }
        r = plane_executor_init(&executor, ops, arguments->gpu, &arguments->plane,
                                (uint64_t)arguments->stall_ms * 1000000u, error);
        if (r < 0) {
                log_error("executor %s: device %u: %s", arguments->name, arguments->plane.device,
                          error[0] ? error : strerror(-r));
                return r;
        }
        log_info("executor %s: device %u is %s (%s), %u resident blocks", arguments->name, arguments->plane.device,
                 executor.info.gpu.name, executor.info.gpu.pci, executor.info.resident_blocks);
        soften_parent_death();
        r = run(&executor.service, arguments);
        if (r < 0) { /* the context is lost, and closing might wait for ever */
                log_warning("executor %s: ends with requests in flight", arguments->name);
                _exit(1);
        }
        if (executor.draining && !ops->drain(executor.plane))
                log_warning("executor %s: ends with requests in flight; they will be reported as lost",
                            arguments->name);
        plane_executor_deinit(&executor); /* ends the kernels in any case: to go with one running may hurt others */
        return 0;
}

int main(int argc, char **argv) {
        struct arguments arguments = {.n_gpus = 8, .stall_ms = 500};
        int r;

        log_init("railmux-executor", LOG_LEVEL_INFO);
        r = parse_argv(argc, argv, &arguments);
        if (r)
                return r < 0 ? 2 : 0;
        if (arguments.probe)
                return probe_run(arguments.backend ? arguments.backend : "hip");
        signal(SIGPIPE, SIG_IGN);
        if (arguments.exit_with_daemon)
                prctl(PR_SET_PDEATHSIG, SIGKILL);
        fds_reserve(MAIN_FDS);
        r = arguments.backend ? run_plane(&arguments) : run_host(&arguments);
        return r < 0 ? 1 : 0;
}
