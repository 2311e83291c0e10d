/* SPDX-License-Identifier: MIT */
#include "executor/request.h"

#include <stdlib.h>

#include "executor/session.h"

void request_hold(struct request *request) {
        buffer_use(request->in_buffer);
        buffer_use(request->out_buffer);
        for (uint32_t i = 0; request->entries && i < request->n_gpu; i++)
                buffer_use(request->entries[i].buffer);
}

void request_release(struct request *request) {
        buffer_unuse(request->in_buffer);
        buffer_unuse(request->out_buffer);
        request->in_buffer = request->out_buffer = NULL;
        for (uint32_t i = 0; request->entries && i < request->n_gpu; i++)
                buffer_unuse(request->entries[i].buffer);
        request->entries = NULL;
        request->gpu = NULL;
        request->n_gpu = 0;
        free(request->memory);
        request->memory = NULL;
}
