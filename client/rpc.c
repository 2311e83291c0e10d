/* SPDX-License-Identifier: MIT */
/*
 * Calls over one packet socket, from many threads, with no thread of our own.
 *
 * Every call is listed under rpc->mutex and sent without blocking. Then its thread waits. One of the waiting threads is
 * the reader: it alone sleeps in poll(2), without the mutex; the others sleep on their call's condition variable.
 * Whoever wakes takes the mutex, reads all packets that are there (never blocking) and files each answer with the call
 * of its id. A reader whose own answer has come names a successor by waking the oldest call that still waits.
 *
 * While a reader polls, nobody else reads: poll(2) looks again at the socket when it wakes, and would go back to sleep
 * if somebody had taken its packets meanwhile, with the reader's own answer among them. So rpc_pump() leaves the socket
 * to a reader if there is one.
 *
 * A full socket leaves a call unsent. Its thread then polls for room itself, also next to a reader that sleeps already
 * (that one was not asked to watch for room); every thread that wakes tries to send what is unsent, oldest first.
 *
 * Messages that nobody waits for (posts) take back what was called before: they must not be lost because the socket is
 * full, or other ranks would wait. What finds no room is copied, and goes before the calls that are unsent: those are
 * younger, or given up with it. Some are kept until they are answered, for the next daemon: the one that has read them
 * may die before it has done what they say.
 *
 * Room may also be missing in the kernel's memory. That says nothing of the connection, and poll(2) may find room in
 * the socket at the same time, so what is unsent is tried again after a while.
 *
 * A call may be given up from another thread. If its thread is in poll(2), an eventfd brings it back: a semaphore, from
 * which each thread that was called takes one. Others that poll see it readable as well, and look again until it is.
 * One is called, too, when a post finds no room, as it may have slept before there was anything to send. What nobody
 * was called with is taken out by whoever sees it, or all that poll would look again for ever.
 *
 * Programs have threads with little stack, and packets may be large: they are put together and taken apart in the rpc's
 * own memory, under the mutex.
 *
 * railmuxd may die and be replaced while the socket stays open, held by the service manager. Calls simply wait then.
 * The successor says RESUMED, and all unanswered calls are sent again under their ids; they are idempotent by their own
 * keys. A call that was answered just before may so be answered twice; the second answer finds no call and is a stray.
 * End of file on the socket means that nobody will ever answer: all calls end with RPC_E_LOST.
 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "client/error.h"
#include "client/rpc.h"
#include "railmux/railmux.h"
#include "util/cleanup.h"
#include "util/clock.h"

#define MEMORY_WAIT_MS 5 /* until what the kernel had no memory for is sent again */

int rpc_init(struct rpc *rpc, int fd) {
        int r;

        rpc->packet = malloc(FRAME_BYTES_MAX);
        if (!rpc->packet)
                return -ENOMEM;
        rpc->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
        r = rpc->wake_fd < 0 ? errno : pthread_mutex_init(&rpc->mutex, NULL);
        if (r) {
                cleanup_close(&rpc->wake_fd);
                free(rpc->packet);
                rpc->packet = NULL;
                return -r;
        }
        rpc->fd = fd;
        rpc->next_id = 1;
        rpc->initialised = true;
        return 0;
}

static void post_free(struct rpc *rpc, struct rpc_post *post) {
        DL_DELETE(rpc->posts, post);
        railmux__session__message__free_unpacked(post->message, NULL);
        free(post);
}

void rpc_deinit(struct rpc *rpc) {
        if (!rpc->initialised)
                return;
        assert(!rpc->calls);
        while (rpc->posts)
                post_free(rpc, rpc->posts); /* the end of the session says it all */
        cleanup_close(&rpc->fd);
        cleanup_close(&rpc->wake_fd);
        free(rpc->packet);
        pthread_mutex_destroy(&rpc->mutex);
        *rpc = (struct rpc)RPC_INIT;
}

uint64_t rpc_lost_ns(struct rpc *rpc) {
        /* relaxed; partner: the store in rpc_lose. Only a hint to stop waiting, it orders nothing. */
        return atomic_load_explicit(&rpc->lost_ns, memory_order_relaxed);
}

static void call_end(struct rpc_call *call, int condition) {
        call->condition = condition;
        call->done = true;
        pthread_cond_signal(&call->changed);
}

/* The call failed here; the connection is as it was. */
static void call_refuse(struct rpc_call *call, const char *text, int error) {
        call->answer.body = RAILMUX__SESSION__MESSAGE__BODY_FAILURE;
        call->answer.code = RMX_E_LIMIT;
        snprintf(call->answer.text, sizeof(call->answer.text), "%s (errno %d)", text, error);
        call_end(call, 0);
}

static void rpc_lose(struct rpc *rpc) {
        struct rpc_call *call;

        if (!rpc_lost(rpc)) /* relaxed; partner: the load in rpc_lost_ns. */
                atomic_store_explicit(&rpc->lost_ns, clock_now_ns(), memory_order_relaxed);
        DL_FOREACH(rpc->calls, call) {
                if (!call->done)
                        call_end(call, RPC_E_LOST);
        }
}

static bool rpc_has_unsent_posts(const struct rpc *rpc) {
        const struct rpc_post *post;

        DL_FOREACH(rpc->posts, post) {
                if (!post->sent)
                        return true;
        }
        return false;
}

/* FRAME_E_AGAIN also if the kernel has no memory for it just now. */
static int rpc_send(struct rpc *rpc, const Railmux__Session__Message *message, const int *fds, unsigned int n_fds) {
        int r = frame_send_by(rpc->packet, rpc->fd, &message->base, fds, n_fds);

        rpc->no_memory = r == -ENOMEM || r == -ENOBUFS;
        return rpc->no_memory ? FRAME_E_AGAIN : r;
}

/* False: there is no room for the next one. */
static bool rpc_flush_posts(struct rpc *rpc) {
        struct rpc_post *post, *next;

        DL_FOREACH_SAFE(rpc->posts, post, next) {
                if (post->sent)
                        continue;
                if (rpc_send(rpc, post->message, NULL, 0) == FRAME_E_AGAIN)
                        return false;
                post->sent = true; /* if the connection is closed, whoever reads finds out */
                if (!post->sure)
                        post_free(rpc, post);
        }
        return true;
}

static void rpc_flush(struct rpc *rpc) {
        struct rpc_call *call;
        int r;

        if (!rpc_flush_posts(rpc))
                return;
        DL_FOREACH(rpc->calls, call) {
                if (call->sent || call->done)
                        continue;
                r = rpc_send(rpc, call->message, call->send_fds, call->n_send_fds);
                if (r == FRAME_OK) {
                        call->sent = call->ever_sent = true;
                        pthread_cond_signal(&call->changed);
                } else if (r == FRAME_E_AGAIN) {
                        return;
                } else if (r == FRAME_E_TOO_LARGE) {
                        call_end(call, RPC_E_TOO_LARGE);
                } else if (call->n_send_fds && r != FRAME_E_EOF) { /* most likely ETOOMANYREFS */
                        call_refuse(call, "descriptors cannot be sent to the daemon", -r);
                } else {
                        rpc_lose(rpc);
                        return;
                }
        }
}

static bool rpc_has_unsent(const struct rpc *rpc) {
        const struct rpc_call *call;

        DL_FOREACH(rpc->calls, call) {
                if (!call->sent && !call->done)
                        return true;
        }
        return rpc_has_unsent_posts(rpc);
}

static void copy_text(char *to, size_t size, const char *from) {
        size_t n = from ? strnlen(from, size - 1) : 0;

        if (n)
                memcpy(to, from, n);
        to[n] = 0;
}

/* Copies what callers need. False for a body that no answer has. */
static bool answer_decode(struct rpc_answer *answer, const Railmux__Session__Message *m) {
        answer->body = m->body_case;
        answer->code = RMX_OK;
        answer->truncated = false;
        answer->text[0] = 0;
        switch (m->body_case) {
        case RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY:
                answer->hello.version = m->hello_reply->version;
                answer->hello.gpus = m->hello_reply->gpus;
                answer->hello.session = m->hello_reply->session;
                answer->hello.features = m->hello_reply->features;
                copy_text(answer->hello.backend, sizeof(answer->hello.backend), m->hello_reply->backend);
                answer->hello.n_pci = 0;
                for (size_t i = 0; i < m->hello_reply->n_gpu_pci && i < RPC_GPUS_MAX; i++)
                        copy_text(answer->hello.pci[answer->hello.n_pci++], RPC_PCI_BYTES, m->hello_reply->gpu_pci[i]);
                return true;
        case RAILMUX__SESSION__MESSAGE__BODY_FAILURE:
                answer->code = (uint32_t)error_sanitise(m->failure->code);
                copy_text(answer->text, sizeof(answer->text), m->failure->message);
                return true;
        case RAILMUX__SESSION__MESSAGE__BODY_ACK:
        case RAILMUX__SESSION__MESSAGE__BODY_LIFE_REPLY:
                return true;
        case RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY:
                answer->ring.gpu = m->ring_reply->gpu;
                answer->ring.depth = m->ring_reply->depth;
                answer->ring.argument_bytes = m->ring_reply->argument_bytes;
                return true;
        case RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY:
                answer->buffer.buffer = m->buffer_reply->buffer;
                answer->buffer.bytes = m->buffer_reply->bytes;
                return true;
        case RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY:
                if (m->id_reply->id.len != sizeof(answer->id.bytes))
                        return false;
                memcpy(answer->id.bytes, m->id_reply->id.data, sizeof(answer->id.bytes));
                return true;
        case RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY:
                answer->comm.handle = m->comm_reply->handle;
                answer->comm.n_ranks = m->comm_reply->n_ranks;
                answer->comm.rank = m->comm_reply->rank;
                answer->comm.gpu = m->comm_reply->gpu;
                answer->comm.epoch = m->comm_reply->epoch;
                answer->comm.exchange_min = m->comm_reply->exchange_min;
                answer->comm.exchange_max = m->comm_reply->exchange_max;
                if (m->comm_reply->node.len > sizeof(answer->comm.node))
                        return false;
                answer->comm.n_placed = (uint32_t)m->comm_reply->node.len;
                if (answer->comm.n_placed)
                        memcpy(answer->comm.node, m->comm_reply->node.data, answer->comm.n_placed);
                return true;
        default:
                return false;
        }
}

static void rpc_resume(struct rpc *rpc) {
        struct rpc_post *post;
        struct rpc_call *call;

        DL_FOREACH(rpc->posts, post) {
                post->sent = false;
        }
        DL_FOREACH(rpc->calls, call) {
                if (!call->done)
                        call->sent = false;
        }
        rpc_flush(rpc);
}

/* False: the answer is to none of those that are kept. */
static bool rpc_answer_post(struct rpc *rpc, uint64_t id) {
        struct rpc_post *post;

        DL_FOREACH(rpc->posts, post) {
                if (post->message->id == id)
                        break;
        }
        if (post)
                post_free(rpc, post);
        return post != NULL;
}

/* Files one packet. Takes the descriptors. */
static void rpc_dispatch(struct rpc *rpc, const Railmux__Session__Message *m, int *fds, unsigned int n_fds) {
        struct rpc_answer stray;
        struct rpc_call *call;

        if (m->body_case == RAILMUX__SESSION__MESSAGE__BODY_EVENT) {
                frame_close_fds(fds, n_fds);
                if (m->event->body_case == RAILMUX__SESSION__EVENT__BODY_RESUMED)
                        rpc_resume(rpc);
                else if (rpc->on_event)
                        rpc->on_event(rpc->userdata, m->event);
                return;
        }
        DL_FOREACH(rpc->calls, call) {
                if (call->id == m->id && !call->done)
                        break;
        }
        if (!call) {
                frame_close_fds(fds, n_fds);
                if (!rpc_answer_post(rpc, m->id) && answer_decode(&stray, m) && rpc->on_stray)
                        rpc->on_stray(rpc->userdata, &stray);
                return;
        }
        if (!answer_decode(&call->answer, m)) {
                call->answer.body = RAILMUX__SESSION__MESSAGE__BODY_FAILURE;
                call->answer.code = RMX_E_INTERNAL;
                copy_text(call->answer.text, sizeof(call->answer.text), "the daemon's answer makes no sense");
        }
        memcpy(call->answer.fds, fds, n_fds * sizeof(*fds));
        call->answer.n_fds = n_fds;
        if (call->on_answer)
                call->on_answer(call);
        call_end(call, 0);
}

/* Descriptors were cut off a packet, and the packet with them: most likely this process may open no more. Which call it
 * answered is not known, so all that wait for descriptors fail. */
static void rpc_truncated(struct rpc *rpc) {
        struct rpc_call *call;

        DL_FOREACH(rpc->calls, call) {
                if (call->done || !call->n_fds)
                        continue;
                call->answer.body = RAILMUX__SESSION__MESSAGE__BODY_FAILURE;
                call->answer.code = RMX_E_LIMIT;
                call->answer.truncated = true;
                copy_text(call->answer.text, sizeof(call->answer.text),
                          "descriptors sent by the daemon could not be received (limit of open files, ulimit -n)");
                call_end(call, 0);
        }
}

static void rpc_receive_all(struct rpc *rpc) {
        while (!rpc_lost(rpc)) {
                struct frame_arena arena;
                ProtobufCMessage *message;
                int fds[FRAME_FDS_MAX];
                unsigned int n_fds;
                int r;

                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                r = frame_receive_by(rpc->packet, rpc->fd, &railmux__session__message__descriptor, &arena, &message,
                                     fds, &n_fds);
                if (r == FRAME_E_AGAIN)
                        return;
                if (r == FRAME_E_TRUNCATED) {
                        rpc_truncated(rpc);
                        continue;
                }
                if (r) { /* end of file, or a stream that cannot be read on */
                        rpc_lose(rpc);
                        return;
                }
                rpc_dispatch(rpc, (const Railmux__Session__Message *)message, fds, n_fds);
                protobuf_c_message_free_unpacked(message, &arena.allocator);
        }
}

static int remaining_ms(uint64_t deadline_ns) {
        uint64_t now, ms;

        if (deadline_ns == RPC_NO_DEADLINE)
                return -1;
        now = clock_now_ns();
        if (now >= deadline_ns)
                return 0;
        ms = (deadline_ns - now + 999999) / 1000000;
        return ms > INT_MAX ? INT_MAX : (int)ms;
}

static void call_sleep(struct rpc *rpc, struct rpc_call *call, uint64_t deadline_ns) {
        struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                 .tv_nsec = (long)(deadline_ns % 1000000000u)};

        if (deadline_ns == RPC_NO_DEADLINE)
                pthread_cond_wait(&call->changed, &rpc->mutex);
        else
                pthread_cond_timedwait(&call->changed, &rpc->mutex, &until);
}

/* Brings the call's thread back from poll(2). */
static void call_wake(struct rpc *rpc, struct rpc_call *call) {
        static const uint64_t one = 1;

        if (!call->polling || call->called)
                return;
        call->called = true;
        (void)!write(rpc->wake_fd, &one, sizeof(one));
}

static bool rpc_has_called(const struct rpc *rpc) {
        const struct rpc_call *call;

        DL_SEARCH_SCALAR(rpc->calls, call, called, true);
        return call != NULL;
}

static void call_poll(struct rpc *rpc, struct rpc_call *call, uint64_t deadline_ns) {
        struct pollfd p[] = {{.fd = rpc->fd, .events = POLLIN}, {.fd = rpc->wake_fd, .events = POLLIN}};
        bool reader = !rpc->polling;
        int ms = remaining_ms(deadline_ns);
        uint64_t one;

        if (rpc_has_unsent(rpc)) {
                p[0].events = (short)((reader ? POLLIN : 0) | (rpc->no_memory ? 0 : POLLOUT));
                if (rpc->no_memory && (ms < 0 || ms > MEMORY_WAIT_MS))
                        ms = MEMORY_WAIT_MS;
        }
        if (reader)
                rpc->polling = true;
        call->polling = true;
        pthread_mutex_unlock(&rpc->mutex);
        (void)poll(p, 2, ms); /* whatever woke us, the next step is to look */
        pthread_mutex_lock(&rpc->mutex);
        call->polling = false;
        if (call->called || (p[1].revents && !rpc_has_called(rpc)))
                (void)!read(rpc->wake_fd, &one, sizeof(one));
        call->called = false;
        if (reader)
                rpc->polling = false;
        if (!rpc->polling)
                rpc_receive_all(rpc);
        if (!rpc_lost(rpc))
                rpc_flush(rpc);
}

/* Wakes the oldest waiting call, so that it reads from now on. */
static void rpc_name_reader(struct rpc *rpc) {
        struct rpc_call *call;

        if (rpc->polling)
                return;
        DL_FOREACH(rpc->calls, call) {
                if (!call->done) {
                        pthread_cond_signal(&call->changed);
                        return;
                }
        }
}

int rpc_call(struct rpc *rpc, struct rpc_call *call, uint64_t deadline_ns) {
        pthread_condattr_t attributes;
        int condition;

        call->answer.n_fds = 0;
        call->sent = call->ever_sent = call->done = false;
        call->condition = 0;
        if (rpc_lost(rpc))
                return RPC_E_LOST;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&call->changed, &attributes);
        pthread_condattr_destroy(&attributes);

        pthread_mutex_lock(&rpc->mutex);
        call->message->id = call->id = rpc->next_id++;
        DL_APPEND(rpc->calls, call);
        if (rpc_lost(rpc))
                call_end(call, RPC_E_LOST);
        else if (call->cancelled)
                call_end(call, RPC_E_CANCELLED);
        else
                rpc_flush(rpc);
        while (!call->done) {
                if (!rpc->polling || !call->sent)
                        call_poll(rpc, call, deadline_ns);
                else
                        call_sleep(rpc, call, deadline_ns);
                if (!call->done && deadline_ns != RPC_NO_DEADLINE && clock_now_ns() >= deadline_ns)
                        call_end(call, RPC_E_TIMEOUT);
        }
        condition = call->condition;
        DL_DELETE(rpc->calls, call);
        rpc_name_reader(rpc);
        pthread_mutex_unlock(&rpc->mutex);
        pthread_cond_destroy(&call->changed);
        return condition;
}

void rpc_cancel(struct rpc *rpc, struct rpc_call *call) {
        bool listed;

        pthread_mutex_lock(&rpc->mutex);
        /* Ends it only where its thread has listed it, or its condition variable may not exist. */
        listed = call->next != NULL || call->prev != NULL;
        if (!call->cancelled && listed && !call->done) {
                call_end(call, RPC_E_CANCELLED);
                call_wake(rpc, call);
        }
        call->cancelled = true;
        pthread_mutex_unlock(&rpc->mutex);
}

/* By way of its packed form: what it points to is the caller's. */
static Railmux__Session__Message *message_copy(const Railmux__Session__Message *message) {
        size_t n = railmux__session__message__get_packed_size(message);
        Railmux__Session__Message *copy = NULL;
        uint8_t *bytes = malloc(n);

        if (bytes)
                copy = railmux__session__message__unpack(NULL, railmux__session__message__pack(message, bytes), bytes);
        free(bytes);
        return copy;
}

/* Has the threads that poll look what there is to do. All of them: one that has sent its call does not poll again, and
 * the one that reads may not wait for room. */
static void rpc_wake_polling(struct rpc *rpc) {
        struct rpc_call *call;

        DL_FOREACH(rpc->calls, call) {
                call_wake(rpc, call);
        }
}

static void rpc_post(struct rpc *rpc, Railmux__Session__Message *message, bool sure) {
        struct rpc_post *post;
        bool sent;

        message->id = rpc->next_id++;
        if (rpc_lost(rpc))
                return;
        sent = !rpc_has_unsent_posts(rpc) && rpc_send(rpc, message, NULL, 0) != FRAME_E_AGAIN;
        if (sent && !sure)
                return;
        post = calloc(1, sizeof(*post));
        if (post)
                post->message = message_copy(message);
        if (post && post->message) {
                post->sure = sure;
                post->sent = sent;
                DL_APPEND(rpc->posts, post);
                if (!sent)
                        rpc_wake_polling(rpc);
        } else { /* then only the end of the session takes back what this would have */
                free(post);
        }
}

void rpc_post_locked(struct rpc *rpc, Railmux__Session__Message *message) {
        rpc_post(rpc, message, false);
}

void rpc_post_sure_locked(struct rpc *rpc, Railmux__Session__Message *message) {
        rpc_post(rpc, message, true);
}

void rpc_pump(struct rpc *rpc) {
        if (rpc_lost(rpc))
                return;
        pthread_mutex_lock(&rpc->mutex);
        if (!rpc->polling)
                rpc_receive_all(rpc);
        if (!rpc_lost(rpc))
                rpc_flush(rpc);
        pthread_mutex_unlock(&rpc->mutex);
}
