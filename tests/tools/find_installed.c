/* SPDX-License-Identifier: MIT */
/* Says where programs of railmux find what is installed with them. From wherever this one is copied to. */
#include "daemon/launcher_command.h"
#include "tools/perf/gpu.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
        char error[GPU_ERROR_MAX] = "";
        const struct gpu_ops *ops;
        char *path = NULL;

        printf("plug-in: %s\n", gpu_load("none", &ops, error) == 0 ? "loaded" : error);
        printf("executor: %s\n", launcher_command_path(&path) == 0 ? path : "not found");
        free(path);
        return 0;
}
