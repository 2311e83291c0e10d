/* SPDX-License-Identifier: MIT */
/* railmuxd: parse_argv, setup, run. */
#include "daemon/config.h"
#include "daemon/keeper.h"
#include "daemon/manager.h"
#include "daemon/options.h"
#include "railmux/railmux.h"
#include "util/fds.h"
#include "util/log.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAIN_FDS 8192u /* there is room for from the beginning */

enum { MAIN_RUN = 1, MAIN_DONE };

static int main_parse_argv(struct options *options, int argc, char **argv) {
        char error[CONFIG_ERROR_MAX];
        int r;

        r = options_parse(options, argc, argv, error);
        if (r < 0) {
                fprintf(stderr, "railmuxd: %s\n", error);
                return r;
        }
        if (options->help || options->version) {
                if (options->help)
                        fputs(options_help, stdout);
                else
                        printf("railmuxd %d.%d.%d\n", RMX_VERSION_MAJOR, RMX_VERSION_MINOR, RMX_VERSION_PATCH);
                return MAIN_DONE;
        }
        return MAIN_RUN;
}

static int main_setup(const struct options *options, struct config *config) {
        char error[CONFIG_ERROR_MAX] = "";
        int r;

        r = config_load(config, options->config_path, error);
        if (r < 0 && r != -ENOMEM)
                r = -EINVAL; /* a file that cannot be read is as wrong as what might stand in it */
        if (!r)
                r = options_apply(options, config, error);
        if (r < 0) {
                log_error("%s", error);
                return r;
        }
        log_set_level(config->log_level);
        signal(SIGPIPE, SIG_IGN);
        fds_raise(); /* every client costs some; its tenant's limit is what bounds them, not the shell's default */
        fds_reserve(MAIN_FDS);
        return 0;
}

static int main_run(const struct options *options, struct config *config) {
        struct manager *manager;
        int r;

        r = manager_new(config, options, &manager);
        if (r < 0) {
                log_error("cannot start: %s", strerror(-r));
                return r;
        }
        r = manager_run(manager);
        if (r < 0)
                log_error("the event loop failed: %s", strerror(-r));
        manager_free(manager);
        return r;
}

int main(int argc, char **argv) {
        struct options options;
        struct config config;
        int r;

        log_init("railmuxd", LOG_LEVEL_INFO);
        config_init(&config);

        r = main_parse_argv(&options, argc, argv);
        if (r != MAIN_RUN)
                goto exit;
        r = main_setup(&options, &config);
        if (r < 0)
                goto exit;
        if (options.check) {
                printf("railmuxd: nothing is wrong with the command line and %s\n",
                       config.file ? config.file : "the defaults, there is no file");
                goto exit;
        }
        if (options.keep) {
                config_deinit(&config);
                return keeper_run(argc, argv);
        }
        r = main_run(&options, &config);

exit:
        config_deinit(&config);
        if (r == -EINVAL)
                return 2;
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
