/* SPDX-License-Identifier: MIT */
#include "executor/probe.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "executor/plane_plugin.h"

static json_t *gpu_json(const struct plane_gpu *gpu, uint32_t index) {
        return json_pack("{s:i, s:s, s:s, s:I, s:i}", "index", (int)index, "name", gpu->name, "pci", gpu->pci,
                         "memory_bytes", (json_int_t)gpu->memory_bytes, "processors", (int)gpu->processors);
}

/* The plug-in writes these; a text that is no UTF-8 would make the whole document impossible. */
static void text_clean(char *text, size_t size) {
        text[size - 1] = '\0';
        for (char *p = text; *p; p++)
                if (*p < ' ' || *p > '~')
                        *p = '?';
}

static int probe_print(const char *backend, struct plane_probe *probe) {
        json_t *gpus = json_array(), *document;
        int r = 0;

        text_clean(probe->runtime, sizeof(probe->runtime));
        text_clean(probe->problem, sizeof(probe->problem));
        for (uint32_t i = 0; i < probe->n_gpus && i < PLANE_GPUS_MAX; i++) {
                text_clean(probe->gpu[i].name, sizeof(probe->gpu[i].name));
                text_clean(probe->gpu[i].pci, sizeof(probe->gpu[i].pci));
                if (json_array_append_new(gpus, gpu_json(&probe->gpu[i], i)) < 0)
                        r = -1;
        }
        document = json_pack("{s:i, s:s, s:s, s:s, s:o}", "version", 1, "backend", backend, "runtime", probe->runtime,
                             "problem", probe->problem, "gpus", gpus);
        if (!document || r < 0 || json_dumpf(document, stdout, JSON_INDENT(2)) < 0 || putchar('\n') == EOF ||
            fflush(stdout) == EOF)
                r = -1;
        json_decref(document);
        return r;
}

int probe_run(const char *backend) {
        static struct plane_probe probe;
        const struct plane_ops *ops = NULL;
        char error[PLANE_TEXT] = "";
        int status, r;

        r = plane_plugin_load(backend, &ops, error);
        if (!r)
                r = ops->probe(&probe, error);
        if (r) {
                probe.n_gpus = 0;
                snprintf(probe.problem, sizeof(probe.problem), "%s", error[0] ? error : "the GPUs cannot be listed");
        } else if (!probe.n_gpus && !probe.problem[0]) {
                snprintf(probe.problem, sizeof(probe.problem), "there is no GPU");
        }
        status = !probe.n_gpus ? PROBE_NONE : probe.problem[0] ? PROBE_PROBLEM : PROBE_SERVED;
        r = probe_print(ops ? ops->name : backend, &probe);
        /* Not unloaded: a runtime may have left threads behind. */
        return r < 0 ? 1 : status;
}
