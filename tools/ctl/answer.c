/* SPDX-License-Identifier: MIT */
#include "tools/ctl/answer.h"

#include "proto/frame.h"
#include "railmux/railmux.h"
#include "topology/rails.h"
#include "topology/topology.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_REPLIES_MAX 65536u

static int answer_append(void ***rows, size_t *n, void *const *more, size_t n_more) {
        void **grown;

        if (!n_more)
                return 0;
        grown = realloc(*rows, (*n + n_more) * sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        memcpy(grown + *n, more, n_more * sizeof(*grown));
        *rows = grown;
        *n += n_more;
        return 0;
}

#define APPEND(answer, reply, rows)                                                                                    \
        answer_append((void ***)&(answer)->rows, &(answer)->n_##rows, (void *const *)(reply)->rows, (reply)->n_##rows)

static int answer_append_text(struct answer *answer, const char *text) {
        size_t length = strlen(text);
        char *grown;

        if (!length)
                return 0;
        grown = realloc(answer->topology, answer->topology_length + length + 1);
        if (!grown)
                return -ENOMEM;
        memcpy(grown + answer->topology_length, text, length + 1);
        answer->topology = grown;
        answer->topology_length += length;
        return 0;
}

/* Takes reply over in any case. */
static int answer_add(struct answer *answer, Railmux__Control__Reply *reply) {
        Railmux__Control__Reply **replies;
        int r = 0;

        replies = realloc(answer->replies, (answer->n_replies + 1) * sizeof(*replies));
        if (!replies) {
                railmux__control__reply__free_unpacked(reply, NULL);
                return -ENOMEM;
        }
        answer->replies = replies;
        replies[answer->n_replies++] = reply;
        if (!answer->code && (reply->code || *reply->message)) {
                answer->code = reply->code;
                answer->message = reply->message;
        }
        if (reply->status)
                answer->status = reply->status;
        if (reply->daemon_version)
                answer->daemon_version = reply->daemon_version;
        if (reply->drained)
                answer->drained = reply->drained;
        r |= APPEND(answer, reply, tenants);
        r |= APPEND(answer, reply, sessions);
        r |= APPEND(answer, reply, comms);
        r |= APPEND(answer, reply, gpus);
        r |= APPEND(answer, reply, metrics);
        r |= APPEND(answer, reply, peers);
        r |= APPEND(answer, reply, rail_rows);
        r |= APPEND(answer, reply, routes);
        r |= answer_append_text(answer, reply->topology);
        return r ? -ENOMEM : 0;
}

void answer_deinit(struct answer *answer) {
        for (size_t i = 0; i < answer->n_replies; i++)
                railmux__control__reply__free_unpacked(answer->replies[i], NULL);
        free(answer->replies);
        free(answer->tenants);
        free(answer->sessions);
        free(answer->comms);
        free(answer->gpus);
        free(answer->metrics);
        free(answer->peers);
        free(answer->rail_rows);
        free(answer->routes);
        free(answer->topology);
        topology_free(answer->graph);
        free(answer->rails);
        *answer = (struct answer)ANSWER_INIT;
}

#define COMPARE(a, b) ((a) < (b) ? -1 : (a) > (b))

static int answer_by_tenant(const void *a, const void *b) {
        return strcmp((*(Railmux__Control__Tenant *const *)a)->name, (*(Railmux__Control__Tenant *const *)b)->name);
}

static int answer_by_session(const void *a, const void *b) {
        return COMPARE((*(Railmux__Control__Session *const *)a)->session,
                       (*(Railmux__Control__Session *const *)b)->session);
}

static int answer_by_comm(const void *a, const void *b) {
        return COMPARE((*(Railmux__Control__Comm *const *)a)->comm, (*(Railmux__Control__Comm *const *)b)->comm);
}

static int answer_by_gpu(const void *a, const void *b) {
        return COMPARE((*(Railmux__Control__Gpu *const *)a)->index, (*(Railmux__Control__Gpu *const *)b)->index);
}

static void answer_sort(struct answer *answer) {
        if (answer->n_tenants)
                qsort(answer->tenants, answer->n_tenants, sizeof(void *), answer_by_tenant);
        if (answer->n_sessions)
                qsort(answer->sessions, answer->n_sessions, sizeof(void *), answer_by_session);
        if (answer->n_comms)
                qsort(answer->comms, answer->n_comms, sizeof(void *), answer_by_comm);
        if (answer->n_gpus)
                qsort(answer->gpus, answer->n_gpus, sizeof(void *), answer_by_gpu);
}

static int answer_connect(const char *path, int *ret_fd, char error[ANSWER_ERROR_MAX]) {
        const char *hint = "";
        int fd = frame_connect(path);

        if (fd >= 0) {
                *ret_fd = fd;
                return 0;
        }
        if (fd == -ENOENT || fd == -ECONNREFUSED)
                hint = "; is railmuxd running?";
        else if (fd == -EACCES || fd == -EPERM)
                hint = "; members of group railmux-ops may ask";
        snprintf(error, ANSWER_ERROR_MAX, "cannot reach railmuxd at %.100s: %s%s", path, strerror(-fd), hint);
        return ANSWER_E_NO_DAEMON;
}

/* Waits for the socket until the deadline. */
static int answer_wait(int fd, short events, uint64_t deadline_ns, char error[ANSWER_ERROR_MAX]) {
        struct pollfd poll_fd = {.fd = fd, .events = events};

        for (;;) {
                uint64_t now_ns = clock_now_ns();
                int n;

                n = poll(&poll_fd, 1, now_ns < deadline_ns ? (int)((deadline_ns - now_ns) / 1000000u) + 1 : 0);
                if (n > 0)
                        return 0;
                if (n < 0 && errno == EINTR)
                        continue;
                snprintf(error, ANSWER_ERROR_MAX, n < 0 ? "cannot wait for railmuxd: %s" : "railmuxd does not answer%s",
                         n < 0 ? strerror(errno) : "");
                return ANSWER_E_BROKEN;
        }
}

static int answer_send(int fd, const Railmux__Control__Request *request, uint64_t deadline_ns,
                       char error[ANSWER_ERROR_MAX]) {
        int r;

        while ((r = frame_send(fd, &request->base, NULL, 0)) == FRAME_E_AGAIN) {
                r = answer_wait(fd, POLLOUT, deadline_ns, error);
                if (r)
                        return r;
        }
        if (r) {
                snprintf(error, ANSWER_ERROR_MAX, "cannot ask railmuxd: %s", frame_error_text(r));
                return ANSWER_E_BROKEN;
        }
        return 0;
}

static int answer_receive(int fd, const char *path, struct answer *answer, uint64_t deadline_ns,
                          char error[ANSWER_ERROR_MAX]) {
        Railmux__Control__Reply *reply;
        struct frame_arena arena;
        bool more;
        int r;

        do {
                ProtobufCMessage *message;
                int fds[FRAME_FDS_MAX];
                unsigned int n_fds = 0;

                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                r = frame_receive(fd, &railmux__control__reply__descriptor, &arena, &message, fds, &n_fds);
                if (r == FRAME_E_AGAIN) {
                        r = answer_wait(fd, POLLIN, deadline_ns, error);
                        if (r)
                                return r;
                        more = true;
                        continue;
                }
                if (r) {
                        snprintf(error, ANSWER_ERROR_MAX, "no whole answer from railmuxd at %.100s: %s%s", path,
                                 frame_error_text(r), answer->n_replies ? "" : "; is this its control socket?");
                        return ANSWER_E_BROKEN;
                }
                frame_close_fds(fds, n_fds);
                /* The arena allocates with malloc, so the message outlives it. */
                reply = (Railmux__Control__Reply *)message;
                if (reply->version == 0) { /* a session's message looks like a reply that says nothing */
                        railmux__control__reply__free_unpacked(reply, NULL);
                        snprintf(error, ANSWER_ERROR_MAX,
                                 "%.100s is no control socket: clients or executors are served there (see --control)",
                                 path);
                        return ANSWER_E_BROKEN;
                }
                more = reply->more;
                r = answer_add(answer, reply);
                if (r < 0)
                        return r;
        } while (more && answer->n_replies < ANSWER_REPLIES_MAX);
        return 0;
}

int answer_ask(const char *path, const Railmux__Control__Request *request, int timeout_ms, struct answer *answer,
               char error[ANSWER_ERROR_MAX]) {
        uint64_t deadline_ns = clock_now_ns() + (uint64_t)timeout_ms * 1000000u;
        struct answer got = ANSWER_INIT;
        _cleanup_close_ int fd = -1;
        int r;

        r = answer_connect(path, &fd, error);
        if (!r)
                r = answer_send(fd, request, deadline_ns, error);
        if (!r)
                r = answer_receive(fd, path, &got, deadline_ns, error);
        if (r) {
                answer_deinit(&got);
                return r;
        }
        answer_sort(&got);
        *answer = got;
        return 0;
}
