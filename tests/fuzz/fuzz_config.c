/* SPDX-License-Identifier: MIT */
/* Any text as a configuration: accepted with values in range, or refused with a place and what is allowed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "daemon/config_file.h"
#include "daemon/config_keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition) {
        if (!condition)
                __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct config config;
        char error[CONFIG_ERROR_MAX];
        int r;

        if (size > CONFIG_FILE_BYTES_MAX)
                return 0;
        config_init(&config);
        memset(error, 'x', sizeof(error));
        r = config_text_apply(&config, "file", (const char *)data, size, error);
        if (r < 0) {
                check(memchr(error, '\0', sizeof(error)) != NULL);
                check(strncmp(error, "file:", 5) == 0 && error[5] >= '1' && error[5] <= '9');
                check(strstr(error, "allowed: ") != NULL);
        } else {
                check(config.gpus >= 1 && config.gpus <= 64 && config.workers <= 1024 && config.stall_ms >= 1);
                check(config.ring_depth >= 4 && !(config.ring_depth & (config.ring_depth - 1)));
                check(config.client_socket[0] == '/' && strlen(config.client_socket) <= 102);
                check((config.client_mode & ~0666u) == 0);
                for (unsigned int kind = 0; kind < CHARGE_KIND_COUNT; kind++)
                        check(config.limit[kind] >= 1 || kind == CHARGE_FDS || kind == CHARGE_BYTES);
                check(config.limit[CHARGE_FDS] == 0 || config.limit[CHARGE_FDS] >= 16); /* 0: a share */
                check(config.limit[CHARGE_BYTES] == 0 || config.limit[CHARGE_BYTES] >= 1u << 20);
        }
        config_deinit(&config);
        return 0;
}
