/* SPDX-License-Identifier: MIT */
/*
 * A session is one connection. railmuxd knows it by the connection alone, so closing it gives everything back, also
 * when the process just dies.
 *
 * fork() copies this object into a child that must not use it: both would write lines into the same ring. Asking
 * getpid() at every call would put a syscall on the fast path, so the object has a page of its own marked
 * MADV_WIPEONFORK, which the kernel presents to a child as zeroes.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <utlist.h>

#include "client/cancel.h"
#include "client/comm.h"
#include "client/device.h"
#include "client/device_exchange.h"
#include "client/device_streams.h"
#include "client/error.h"
#include "client/group.h"
#include "client/redop.h"
#include "client/request.h"
#include "client/session.h"
#include "client/session_ring.h"
#include "util/cleanup.h"
#include "util/clock.h"

#define SOCKET_DEFAULT   "/run/railmux/client.sock"
#define OPEN_TIMEOUT_MS  5000u
#define CLOSE_TIMEOUT_MS 1000u
#define CONNECT_RETRY_MS 5
#define NAME_BYTES_MAX   63u
#define GPUS_MAX         4096u
#define ALIVE_BYTES      4096u
#define PROBE_NS         (10 * SESSION_LOOK_NS) /* how long an executor may take to answer that it is there */

int session_check(const struct rmx_session *session, const char *what) {
        if (!session)
                return error_set(RMX_E_INVALID, "%s: session is NULL", what);
        if (!session_is_ours(session))
                return error_set(RMX_E_INVALID,
                                 "%s: this session belongs to the parent process; after fork() the child opens its own",
                                 what);
        return RMX_OK;
}

uint64_t session_deadline(uint32_t timeout_ms) {
        return timeout_ms ? clock_now_ns() + (uint64_t)timeout_ms * 1000000u : RPC_NO_DEADLINE;
}

int session_options_grown(const char *what, void *to, size_t size, size_t least, const void *from) {
        const unsigned char *bytes = from;
        size_t given, i;

        memcpy(&given, from, sizeof(given));
        if (given < least)
                return error_set(RMX_E_INVALID, "%s: opt->size is %zu, must be at least %zu (sizeof the struct)", what,
                                 given, least);
        if (given > 65536)
                return error_set(RMX_E_INVALID, "%s: opt->size is %zu, must be sizeof the struct (%zu)", what, given,
                                 size);
        for (i = size; i < given; i++) {
                if (bytes[i])
                        return error_set(RMX_E_UNSUPPORTED, "%s: opt has members that this library does not know",
                                         what);
        }
        memcpy(to, from, given < size ? given : size);
        memcpy(to, &size, sizeof(size));
        return RMX_OK;
}

int session_options_copy(const char *what, void *to, size_t size, const void *from) {
        return session_options_grown(what, to, size, size, from);
}

int session_name_check(const char *what, const char *name) {
        if (name && strnlen(name, NAME_BYTES_MAX + 1) > NAME_BYTES_MAX)
                return error_set(RMX_E_INVALID, "%s: opt->name is longer than %u bytes", what, NAME_BYTES_MAX);
        return RMX_OK;
}

/* ---- calls --------------------------------------------------------------------------------------------------------
 */
int session_call(struct rmx_session *session, const char *what, struct rpc_call *call, uint32_t body,
                 uint64_t deadline_ns) {
        int r;

        r = rpc_call(&session->rpc, call, deadline_ns);
        switch (r) {
        case 0:
                break;
        case RPC_E_LOST:
                return error_set(RMX_E_DAEMON_LOST,
                                 "%s: the connection to the daemon at %s is closed; open a new session", what,
                                 session->path);
        case RPC_E_TIMEOUT:
                return error_set(RMX_E_TIMEOUT, "%s: no answer within the time given", what);
        case RPC_E_CANCELLED:
                return error_set(RMX_E_ABORTED, "%s: it was given up (rmx_cancel_set)", what);
        default:
                return error_set(RMX_E_INVALID, "%s: the call is too large for one message", what);
        }
        if (call->answer.body == body && call->answer.n_fds == call->n_fds)
                return RMX_OK;
        frame_close_fds(call->answer.fds, call->answer.n_fds);
        if (call->answer.body == RAILMUX__SESSION__MESSAGE__BODY_FAILURE)
                return error_set((int)call->answer.code, "%s: %s", what,
                                 call->answer.text[0] ? call->answer.text : rmx_error_name((int)call->answer.code));
        return error_set(RMX_E_INTERNAL, "%s: the daemon gave an answer of another kind (%u with %u descriptors)", what,
                         call->answer.body, call->answer.n_fds);
}

int session_call_until(struct rmx_session *session, const char *what, struct rpc_call *call, uint32_t body,
                       struct rmx_cancel *cancel, uint64_t deadline_ns) {
        struct cancel_entry entry;
        int r;

        if (!cancel_enter(cancel, &entry, &session->rpc, call))
                return error_set(RMX_E_ABORTED, "%s: it was given up (rmx_cancel_set)", what);
        r = session_call(session, what, call, body, deadline_ns);
        cancel_exit(cancel, &entry);
        return r;
}

static void session_on_event(void *userdata, const Railmux__Session__Event *event) {
        comm_on_event(userdata, event);
}

static void session_on_stray(void *userdata, const struct rpc_answer *answer) {
        comm_on_stray(userdata, answer);
}

bool session_on_gpus(const struct rmx_session *session) {
        return session->backend[0] && strcmp(session->backend, "host");
}

void session_look(struct rmx_session *session) {
        rpc_pump(&session->rpc);
        if (rpc_lost(&session->rpc) && session_on_gpus(session))
                devices_lose(session);
}

void session_look_seldom(struct rmx_session *session) {
        uint64_t now = clock_now_ns();
        /* relaxed, both; partners: each other. Two threads that look at once do no harm. */
        uint64_t last = atomic_load_explicit(&session->last_look_ns, memory_order_relaxed);

        if (now - last < SESSION_LOOK_NS)
                return;
        atomic_store_explicit(&session->last_look_ns, now, memory_order_relaxed);
        session_look(session);
}

/*
 * The end of the connection says that railmuxd has gone, and not what became of its executor: that one may go on with
 * the rings that it has. So it is asked, with a line that it has to answer at once, and is gone when it does not. A
 * railmuxd that comes back does not know this session, and has the executor forget the ring; then nobody answers, too.
 * Where the next place of the ring is that of a request that is not over, this one stands for the question. (Of one
 * that is over, and was not waited for, nothing can be learnt; whoever waits for it finds out with the next call.)
 */
bool session_gone(struct rmx_session *session, struct session_ring *ring) {
        uint64_t now;

        /* relaxed, all; partners: each other, and those in request.c. It is set for good and orders nothing. */
        if (atomic_load_explicit(&session->dead, memory_order_relaxed))
                return true;
        if (!rpc_lost(&session->rpc))
                return false;
        pthread_mutex_lock(&session->probe_mutex);
        now = clock_now_ns(); /* not before: another thread may have asked meanwhile */
        if (session->probe_ring && session_ring_answered(session->probe_ring, session->probe_sequence))
                session->probe_ring = NULL;
        else if (session->probe_ring && now - session->probe_ns >= PROBE_NS)
                atomic_store_explicit(&session->dead, true, memory_order_relaxed);
        if (!session->probe_ring) {
                session->probe_sequence = session_ring_ask(ring);
                session->probe_ring = ring;
                session->probe_ns = now;
        }
        pthread_mutex_unlock(&session->probe_mutex);
        return atomic_load_explicit(&session->dead, memory_order_relaxed);
}

/* ---- open ----------------------------------------------------------------------------------------------------------
 */
static int session_connect(struct rmx_session *session, uint64_t deadline_ns, int *ret_fd) {
        const char *path = session->path;
        int fd;

        for (;;) {
                fd = frame_connect(path);
                if (fd != -EAGAIN && fd != -EINTR) /* EAGAIN: the daemon's backlog is full; there is nothing to poll */
                        break;
                if (clock_now_ns() >= deadline_ns)
                        break;
                (void)poll(NULL, 0, CONNECT_RETRY_MS);
        }
        if (fd >= 0) {
                *ret_fd = fd;
                return RMX_OK;
        }
        switch (-fd) {
        case EACCES:
        case EPERM:
                return error_set(
                        RMX_E_DENIED,
                        "rmx_session_open: no permission to connect to %s; is this user in the socket's group?", path);
        case ENAMETOOLONG:
        case EINVAL:
                return error_set(RMX_E_INVALID, "rmx_session_open: %s is no usable socket path (at most 107 bytes)",
                                 path);
        case EMFILE:
        case ENFILE:
                return error_set(RMX_E_LIMIT, "rmx_session_open: no file descriptor is left (ulimit -n)");
        case ENOMEM:
        case ENOBUFS:
                return error_set(RMX_E_NO_MEMORY, "rmx_session_open: out of memory");
        default:
                return error_set(RMX_E_NO_DAEMON,
                                 "rmx_session_open: no daemon at %s (%s); start railmuxd, or name its client socket in "
                                 "$RAILMUX_SOCKET",
                                 path, strerror(-fd));
        }
}

static int session_hello(struct rmx_session *session, const char *name, uint32_t timeout_ms, uint64_t deadline_ns) {
        Railmux__Session__Hello body = RAILMUX__SESSION__HELLO__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call call = {.message = &message};
        char short_name[NAME_BYTES_MAX + 1];
        int r;

        snprintf(short_name, sizeof(short_name), "%s", name ? name : program_invocation_short_name);
        body.version_min = SESSION_PROTOCOL_MIN;
        body.version_max = SESSION_PROTOCOL_MAX;
        body.features = SESSION_FEATURE_CHUNKS | SESSION_FEATURE_LIFE;
        body.name = short_name;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_HELLO;
        message.hello = &body;
        r = session_call(session, "rmx_session_open", &call, RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY, deadline_ns);
        if (r == RMX_E_TIMEOUT)
                return error_set(RMX_E_NO_DAEMON, "rmx_session_open: the daemon at %s did not answer within %u ms",
                                 session->path, timeout_ms);
        if (r == RMX_E_DAEMON_LOST)
                return error_set(RMX_E_NO_DAEMON, "rmx_session_open: the daemon at %s closed the connection at once",
                                 session->path);
        if (r)
                return r;
        if (call.answer.hello.version < SESSION_PROTOCOL_MIN || call.answer.hello.version > SESSION_PROTOCOL_MAX)
                return error_set(RMX_E_VERSION,
                                 "rmx_session_open: the daemon at %s speaks session protocol %u, this library %u to %u",
                                 session->path, call.answer.hello.version, SESSION_PROTOCOL_MIN, SESSION_PROTOCOL_MAX);
        if (!call.answer.hello.gpus || call.answer.hello.gpus > GPUS_MAX)
                return error_set(RMX_E_INTERNAL, "rmx_session_open: the daemon at %s offers %u GPUs", session->path,
                                 call.answer.hello.gpus);
        session->number = call.answer.hello.session;
        session->features = call.answer.hello.features;
        session->n_gpus = call.answer.hello.gpus;
        snprintf(session->backend, sizeof(session->backend), "%s", call.answer.hello.backend);
        session->rings = calloc(session->n_gpus, sizeof(session->rings[0]));
        session->devices = calloc(session->n_gpus, sizeof(session->devices[0]));
        session->gpu_pci = calloc(session->n_gpus, sizeof(session->gpu_pci[0]));
        for (uint32_t i = 0; session->gpu_pci && i < session->n_gpus && i < call.answer.hello.n_pci; i++)
                memcpy(session->gpu_pci[i], call.answer.hello.pci[i], RPC_PCI_BYTES);
        return session->rings && session->devices && session->gpu_pci
                       ? RMX_OK
                       : error_set(RMX_E_NO_MEMORY, "rmx_session_open: out of memory");
}

static struct rmx_session *session_free(struct rmx_session *session) {
        uint32_t i;

        if (!session)
                return NULL;
        rpc_deinit(&session->rpc); /* first: from here on nobody reads */
        life_deinit(&session->life, session->alive && session_is_ours(session));
        while (session->comms) {
                struct rmx_comm *comm = session->comms;

                DL_DELETE(session->comms, comm);
                if (session_is_ours(session))
                        device_exchange_part(comm, false);
                device_streams_forget(comm);
                redops_free(comm);
                rmx_cancel_free(comm->cancel);
                free(comm->nodes);
                free(comm);
        }
        while (session->sets) {
                struct request_set *set = session->sets;

                DL_DELETE(session->sets, set);
                free(set);
        }
        pthread_mutex_destroy(&session->sets_mutex);
        for (i = 0; session->rings && i < session->n_gpus; i++)
                session_ring_free(session->rings[i]);
        free(session->rings);
        for (i = 0; session->devices && i < session->n_gpus; i++) /* relaxed: no other thread is about */
                device_free(atomic_load_explicit(&session->devices[i], memory_order_relaxed));
        free(session->devices);
        free(session->gpu_pci);
        pthread_mutex_destroy(&session->devices_mutex);
        pthread_mutex_destroy(&session->probe_mutex);
        watch_deinit(&session->watch);
        bounce_pool_deinit(&session->bounce);
        buffer_table_deinit(&session->buffers);
        if (session->alive)
                munmap(session->alive, ALIVE_BYTES);
        free(session->path);
        free(session);
        return NULL;
}

static struct rmx_session *session_new(const char *path) {
        struct rmx_session *session;
        void *page;

        session = calloc(1, sizeof(*session));
        if (!session)
                return NULL;
        session->rpc = (struct rpc)RPC_INIT;
        watch_init(&session->watch);
        pthread_mutex_init(&session->sets_mutex, NULL);
        pthread_mutex_init(&session->devices_mutex, NULL);
        pthread_mutex_init(&session->probe_mutex, NULL);
        session->path = strdup(path);
        page = mmap(NULL, ALIVE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED) {
                session->alive = page;
                *session->alive = 1;
                (void)madvise(page, ALIVE_BYTES, MADV_WIPEONFORK); /* refused: misuse after fork() goes unnoticed */
        }
        if (!session->path || !session->alive || buffer_table_init(&session->buffers) ||
            bounce_pool_init(&session->bounce))
                return session_free(session);
        return session;
}

int rmx_session_open(const struct rmx_session_options *opt, struct rmx_session **ret_session) {
        struct rmx_session_options options = {.size = sizeof(options)};
        struct rmx_session *session;
        const char *path;
        uint64_t deadline_ns;
        int r, fd = -1;

        if (!ret_session)
                return error_set(RMX_E_INVALID, "%s: ret_session is NULL", __func__);
        if (opt) {
                r = session_options_copy(__func__, &options, sizeof(options), opt);
                if (r)
                        return r;
                if (options.reserved)
                        return error_set(RMX_E_INVALID, "%s: opt->reserved must be 0", __func__);
                r = session_name_check(__func__, options.name);
                if (r)
                        return r;
        }
        if (!options.timeout_ms)
                options.timeout_ms = OPEN_TIMEOUT_MS;
        path = options.socket ? options.socket : getenv("RAILMUX_SOCKET");
        if (!path || !*path)
                path = SOCKET_DEFAULT;

        session = session_new(path);
        if (!session)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", __func__);
        deadline_ns = session_deadline(options.timeout_ms);
        r = session_connect(session, deadline_ns, &fd);
        if (r) {
                session_free(session);
                return r;
        }
        r = rpc_init(&session->rpc, fd);
        if (r) {
                close(fd);
                session_free(session);
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", __func__);
        }
        session->rpc.on_event = session_on_event;
        session->rpc.on_stray = session_on_stray;
        session->rpc.userdata = session;
        r = session_hello(session, options.name, options.timeout_ms, deadline_ns);
        if (r) {
                session_free(session);
                return r;
        }
        life_start(session, deadline_ns);
        *ret_session = session;
        return RMX_OK;
}

uint32_t rmx_session_gpu_count(const struct rmx_session *session) {
        return session ? session->n_gpus : 0;
}

const char *rmx_session_backend(const struct rmx_session *session) {
        return session ? session->backend : "";
}

const char *rmx_session_gpu_pci(const struct rmx_session *session, uint32_t gpu) {
        return session && gpu < session->n_gpus ? session->gpu_pci[gpu] : "";
}

/* ---- close ---------------------------------------------------------------------------------------------------------
 */
void rmx_session_close(struct rmx_session *session) {
        uint64_t deadline_ns;
        struct rmx_comm *comm;
        uint32_t sequence;

        if (!session)
                return;
        group_forget(session);
        if (!session_is_ours(session)) {
                /* In a child of fork(): drop the copies. The parent's threads do not exist here, so a mutex may be
                 * locked for ever and a call may seem to wait; neither is touched. */
                session->rpc.calls = NULL;
                session_free(session);
                return;
        }
        /* Ranks that have nothing outstanding leave in good order, if the daemon is there to hear it. The end of the
         * connection takes the others away: what they left outstanding ends with RMX_E_PEER_LOST elsewhere. */
        deadline_ns = session_deadline(CLOSE_TIMEOUT_MS);
        DL_FOREACH(session->comms, comm) {
                if (comm->whole && !comm->whole->finished)
                        continue;
                if (comm->device ? !device_finish(comm, deadline_ns) : session_ring_oldest(comm->ring, comm, &sequence))
                        continue;
                if (comm_leave(comm, __func__, deadline_ns) == RMX_E_TIMEOUT)
                        break;
        }
        watch_stop(session); /* until then it may end what was waited for */
        session_free(session);
}
