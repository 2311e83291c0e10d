/* SPDX-License-Identifier: MIT */
#include "daemon/options.h"

#include "daemon/comm_id.h"
#include "daemon/config_keys.h"
#include "daemon/launcher_command.h"
#include "daemon/peer_address.h"
#include "daemon/rails.h"
#include "daemon/tenants.h"
#include "util/log.h"
#include "util/parse.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

const char options_help[] =
        "railmuxd [OPTIONS]\n"
        "\n"
        "Serves collective operations to the processes of this node.\n"
        "\n"
        "  --config FILE      configuration (default /etc/railmux/railmuxd.yaml, if it exists)\n"
        "  --gpu SPEC         auto, hip or hip:N (N of the node's GPUs), host or host:N (N emulated\n"
        "                     ones, 1..64)\n"
        "  --socket PATH      client socket (default /run/railmux/client.sock)\n"
        "  --control PATH     control socket (default /run/railmux/control.sock)\n"
        "  --listen ADDR:PORT listen for the daemons of other nodes; port 0: any\n"
        "  --rail NAME=ADDR   carry what goes to other nodes over this address of ours; may be said\n"
        "                     several times; with ,port=N ,device=IF ,rate=BYTES ,window=BYTES\n"
        "                     ,dscp=N[/N/N] ,kind=tcp|verbs and others behind it, see railmuxd.yaml(5)\n"
        "                     (default: one, where --listen is)\n"
        "  --peer-plain       let them come without TLS also beyond loopback\n"
        "  --workers N        worker threads of the host executor (0: one per CPU, at most 16)\n"
        "  --keep             run under an own keeper that restarts what dies\n"
        "  --check            read configuration and command line, say what is wrong with them, and end\n"
        "  --log-level LEVEL  error, warning, notice, info or debug\n"
        "  --version          print the version\n"
        "  --help             print this\n";

static int options_add_rail(struct options *options, const char *text, char error[CONFIG_ERROR_MAX]) {
        struct rail_spec specs[RAILS_MAX];
        char why[RAILS_WHY_MAX];
        size_t n = strlen(options->rails);
        uint32_t n_rails;

        if (snprintf(options->rails + n, OPTIONS_RAILS_MAX - n, "%s%s", n ? " " : "", text) >=
            (int)(OPTIONS_RAILS_MAX - n)) {
                snprintf(error, CONFIG_ERROR_MAX, "--rail: too many of them");
                return -EINVAL;
        }
        if (rail_specs_parse(options->rails, specs, &n_rails, why) < 0) {
                snprintf(error, CONFIG_ERROR_MAX, "--rail: %s", why);
                return -EINVAL;
        }
        return 0;
}

enum {
        OPT_CONFIG = 256,
        OPT_GPU,
        OPT_SOCKET,
        OPT_CONTROL,
        OPT_LISTEN,
        OPT_PLAIN,
        OPT_RAIL,
        OPT_WORKERS,
        OPT_KEEP,
        OPT_CHECK,
        OPT_LEVEL,
        OPT_VERSION,
        OPT_HELP
};
static const struct option options_table[] = {
        {"config", required_argument, NULL, OPT_CONFIG},
        {"gpu", required_argument, NULL, OPT_GPU},
        {"socket", required_argument, NULL, OPT_SOCKET},
        {"control", required_argument, NULL, OPT_CONTROL},
        {"listen", required_argument, NULL, OPT_LISTEN},
        {"peer-plain", no_argument, NULL, OPT_PLAIN},
        {"rail", required_argument, NULL, OPT_RAIL},
        {"workers", required_argument, NULL, OPT_WORKERS},
        {"keep", no_argument, NULL, OPT_KEEP},
        {"check", no_argument, NULL, OPT_CHECK},
        {"log-level", required_argument, NULL, OPT_LEVEL},
        {"version", no_argument, NULL, OPT_VERSION},
        {"help", no_argument, NULL, OPT_HELP},
        {NULL, 0, NULL, 0},
};

int options_parse(struct options *options, int argc, char **argv, char error[CONFIG_ERROR_MAX]) {
        struct options parsed = {0};
        int c;

        optind = 1;
        opterr = 0;
        while ((c = getopt_long(argc, argv, "", options_table, NULL)) >= 0) {
                switch (c) {
                case OPT_CONFIG:
                        parsed.config_path = optarg;
                        break;
                case OPT_GPU:
                        parsed.gpu = optarg;
                        break;
                case OPT_SOCKET:
                        parsed.socket = optarg;
                        break;
                case OPT_CONTROL:
                        parsed.control = optarg;
                        break;
                case OPT_LISTEN:
                        parsed.listen = optarg;
                        break;
                case OPT_RAIL:
                        if (options_add_rail(&parsed, optarg, error) < 0)
                                return -EINVAL;
                        break;
                case OPT_PLAIN:
                        parsed.peer_plain = true;
                        break;
                case OPT_WORKERS:
                        if (parse_u32(optarg, &parsed.workers) < 0 || parsed.workers > 64) {
                                snprintf(error, CONFIG_ERROR_MAX, "--workers: '%s' is no number in 0 .. 64", optarg);
                                return -EINVAL;
                        }
                        parsed.has_workers = true;
                        break;
                case OPT_KEEP:
                        parsed.keep = true;
                        break;
                case OPT_CHECK:
                        parsed.check = true;
                        break;
                case OPT_LEVEL:
                        parsed.level = log_level_parse(optarg);
                        if (parsed.level < 0) {
                                snprintf(error, CONFIG_ERROR_MAX,
                                         "--log-level: '%s' is none of error, warning, notice, info, debug", optarg);
                                return -EINVAL;
                        }
                        parsed.has_level = true;
                        break;
                case OPT_VERSION:
                        parsed.version = true;
                        break;
                case OPT_HELP:
                        parsed.help = true;
                        break;
                default:
                        snprintf(error, CONFIG_ERROR_MAX, "%s: unknown option, or its value is missing (see --help)",
                                 argv[optind > 1 ? optind - 1 : 1]);
                        return -EINVAL;
                }
        }
        if (optind < argc) {
                snprintf(error, CONFIG_ERROR_MAX, "'%s': no argument is expected here (see --help)", argv[optind]);
                return -EINVAL;
        }
        *options = parsed;
        return 0;
}

char **options_without_keep(int argc, char **argv) {
        char **copy = calloc((size_t)argc + 1, sizeof(*copy));
        int c, n = 0, from = 0;

        optind = 1;
        opterr = 0;
        /* Each turn is one option, with its value: what lies between is copied, unless it is --keep. */
        for (c = 0; copy && c >= 0; from = optind) {
                c = from ? getopt_long(argc, argv, "", options_table, NULL) : 0;
                for (int i = from; i < (c < 0 ? argc : optind) && c != OPT_KEEP; i++) {
                        copy[n] = strdup(argv[i]);
                        if (!copy[n++])
                                return launcher_command_free(copy);
                }
        }
        return copy;
}

static int options_replace(char **target, const char *value) {
        char *copy;

        if (!value)
                return 0;
        copy = strdup(value);
        if (!copy)
                return -ENOMEM;
        free(*target);
        *target = copy;
        return 0;
}

static int options_apply_gpu(const char *gpu, struct config *config, char error[CONFIG_ERROR_MAX]) {
        uint32_t n;

        if (strcmp(gpu, "auto") == 0 || strcmp(gpu, "hip") == 0 || strcmp(gpu, "host") == 0)
                return options_replace(&config->backend, gpu);
        if (strncmp(gpu, "host:", 5) == 0 && parse_u32(gpu + 5, &n) == 0 && n >= 1 && n <= 64) {
                config->gpus = n;
                return options_replace(&config->backend, "host");
        }
        if (strncmp(gpu, "hip:", 4) == 0 && parse_u32(gpu + 4, &n) == 0 && n >= 1 && n <= 64) {
                config->hip_gpus = n;
                return options_replace(&config->backend, "hip");
        }
        snprintf(error, CONFIG_ERROR_MAX, "--gpu: '%s' is none of auto, hip, hip:N, host, host:N with N in 1 .. 64",
                 gpu);
        return -EINVAL;
}

static int options_apply_listen(const char *listen, struct config *config, char error[CONFIG_ERROR_MAX]) {
        struct sockaddr_storage address;
        int size;

        if (listen && peer_address_parse(listen, &address, &size) < 0) {
                snprintf(error, CONFIG_ERROR_MAX, "--listen: '%s' is neither ADDR:PORT nor [ADDR]:PORT in numbers",
                         listen);
                return -EINVAL;
        }
        if (listen)
                snprintf(config->address_at, CONFIG_AT_MAX, "--listen");
        return options_replace(&config->listen, listen);
}

static int options_apply_socket(const char *option, const char *path, char **target, char error[CONFIG_ERROR_MAX]) {
        char why[CONFIG_WHY_MAX];

        if (path && config_key_check_socket(path, why) < 0) {
                snprintf(error, CONFIG_ERROR_MAX, "%s: %s; allowed: a path %s", option, why, CONFIG_SOCKET_ALLOWED);
                return -EINVAL;
        }
        return options_replace(target, path);
}

/* One of two sockets with one path would find that "another" daemon serves it. */
static int options_check_sockets(const struct config *config, char error[CONFIG_ERROR_MAX]) {
        const char *client = config->client_socket, *control = config->control_socket;
        const size_t length = strlen(client);

        if (strncmp(control, client, length) != 0 || (control[length] && strcmp(control + length, ".exec") != 0))
                return 0;
        snprintf(
                error, CONFIG_ERROR_MAX,
                "client.socket is %.110s and control.socket %.110s; allowed: different ones, and a control.socket that "
                "is not the other with .exec, where executors connect",
                client, control);
        return -EINVAL;
}

/* Where others dial this node goes into ids of communicators. peer.advertise has been looked at; where it is empty, it
 * is where this node listens. (If that is all addresses, only a start finds out which one it is.) */
static int options_check_address(const struct config *config, char error[CONFIG_ERROR_MAX]) {
        struct sockaddr_storage address;
        char text[PEER_ADDRESS_MAX];
        int size;

        if (config->advertise[0] || peer_address_parse(config->listen, &address, &size) < 0 ||
            peer_address_is_wildcard((const struct sockaddr *)&address))
                return 0;
        peer_address_format((const struct sockaddr *)&address, text);
        if (strlen(text) < COMM_ID_ADDRESS_BYTES)
                return 0;
        snprintf(error, CONFIG_ERROR_MAX,
                 "%.335s: other nodes would dial %.60s, which has %zu characters; allowed: %u at most, or a "
                 "peer.advertise",
                 config->address_at, text, strlen(text), COMM_ID_ADDRESS_BYTES - 1);
        return -EINVAL;
}

static int options_check_tenants(const struct config *config, char error[CONFIG_ERROR_MAX]) {
        char why[TENANTS_WHY_MAX] = "";
        int r = tenants_check_rails(config->tenants, config->rails, why);

        if (r < 0)
                snprintf(error, CONFIG_ERROR_MAX, "tenants.by_uid: %s; allowed: those of peer.rails%s", why,
                         config->rails[0] ? "" : ", which is " RAIL_ONLY " alone where it is empty");
        return r;
}

int options_apply(const struct options *options, struct config *config, char error[CONFIG_ERROR_MAX]) {
        int r = 0;

        if (options->gpu)
                r = options_apply_gpu(options->gpu, config, error);
        if (!r)
                r = options_apply_socket("--socket", options->socket, &config->client_socket, error);
        if (!r)
                r = options_apply_socket("--control", options->control, &config->control_socket, error);
        if (!r)
                r = options_check_sockets(config, error);
        if (!r)
                r = options_apply_listen(options->listen, config, error);
        if (!r && options->rails[0])
                r = options_replace(&config->rails, options->rails);
        if (!r)
                r = options_check_address(config, error);
        if (!r)
                r = options_check_tenants(config, error);
        if (r == -ENOMEM)
                snprintf(error, CONFIG_ERROR_MAX, "out of memory");
        if (r < 0)
                return r;
        if (options->has_workers)
                config->workers = options->workers;
        if (options->peer_plain)
                config->peer_plain = 1;
        if (options->has_level)
                config->log_level = options->level;
        return 0;
}
