/* SPDX-License-Identifier: MIT */
/* Says what becomes of loading railmux-perf's plug-in for a backend. From wherever this program is copied to. */
#include "tools/perf/gpu.h"

#include <stdio.h>

int main(int argc, char **argv) {
        char error[GPU_ERROR_MAX] = "";
        const struct gpu_ops *ops;

        printf("%s\n", argc > 1 && gpu_load(argv[1], &ops, error) == 0 ? "loaded" : error);
        return 0;
}
