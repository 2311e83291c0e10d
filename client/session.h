/* SPDX-License-Identifier: MIT */
#pragma once
/* One connection of this process to the daemon, and everything below it. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/bounce.h"
#include "client/buffer.h"
#include "client/life.h"
#include "client/rpc.h"
#include "client/watch.h"
#include "railmux/railmux.h"

struct device;
struct request_set;
struct rmx_comm;
struct session_ring;

#define SESSION_LOOK_NS 100000000u /* how often a waiting thread looks at the socket */

struct rmx_session {
        char *path;
        uint64_t number;
        uint64_t features; /* SESSION_FEATURE_*, that the daemon has as well */
        uint32_t n_gpus;
        char backend[16];               /* "host", "hip" */
        char (*gpu_pci)[RPC_PCI_BYTES]; /* [n_gpus], empty strings on the host backend */
        /* A page that the kernel empties in a child of fork(): 1 here, 0 there. Saves a getpid() per call. */
        uint32_t *alive;

        struct rpc rpc;
        struct watch watch;
        struct life life;
        struct session_ring **rings; /* [n_gpus], opened on demand; written under rpc.mutex, then constant */
        struct rmx_comm *comms;      /* under rpc.mutex */
        pthread_mutex_t devices_mutex;
        _Atomic(struct device *) *devices; /* [n_gpus], opened on demand under devices_mutex, then constant */
        struct buffer_table buffers;
        struct bounce_pool bounce;

        pthread_mutex_t sets_mutex;
        struct request_set *sets;  /* groups that nobody waits for now; under sets_mutex */
        _Atomic uint64_t last_set; /* number of the last one made */

        _Atomic uint64_t last_look_ns; /* session_look_seldom */
        _Atomic bool dead; /* daemon and executor are gone: a request was given up, or session_gone found out */
        /* session_gone's question to the executor; under probe_mutex. */
        pthread_mutex_t probe_mutex;
        struct session_ring *probe_ring; /* NULL: none is asked */
        uint32_t probe_sequence;
        uint64_t probe_ns; /* when it was asked */
};

/* RMX_E_INVALID if session is NULL or this is a child of fork(). `what` is the public function's name. */
int session_check(const struct rmx_session *session, const char *what);
/* Are its collectives ordered on streams of GPUs? */
bool session_on_gpus(const struct rmx_session *session);
static inline bool session_is_ours(const struct rmx_session *session) {
        return *(const volatile uint32_t *)session->alive != 0;
}
/* One call with the answer expected to be of kind `body` and to carry `n_fds` descriptors. RMX_*; on failure the error
 * text is set and no descriptor is left open. */
int session_call(struct rmx_session *session, const char *what, struct rpc_call *call, uint32_t body,
                 uint64_t deadline_ns);
/* The same, which the cancel ends with RMX_E_ABORTED; NULL: nothing does. */
int session_call_until(struct rmx_session *session, const char *what, struct rpc_call *call, uint32_t body,
                       struct rmx_cancel *cancel, uint64_t deadline_ns);
/* The deadline of a timeout in milliseconds; 0: none. */
uint64_t session_deadline(uint32_t timeout_ms);
/* Reads events. Never blocks. */
void session_look(struct rmx_session *session);
/* The same, but at most once in SESSION_LOOK_NS: for callers that poll. */
void session_look_seldom(struct rmx_session *session);
/* Are daemon and executor gone for good, as far as can be told by now? Asks by this ring, and never blocks. */
bool session_gone(struct rmx_session *session, struct session_ring *ring);
/* Copies an options struct whose first member is its size. A shorter one is refused, in a longer one the part this
 * library does not know must be zero. */
int session_options_copy(const char *what, void *to, size_t size, const void *from);
/* The same for a struct that has grown: it may be as short as `least`, its first version, and the rest of what `to`
 * points to stays as it is. */
int session_options_grown(const char *what, void *to, size_t size, size_t least, const void *from);
/* NULL, or at most 63 bytes. */
int session_name_check(const char *what, const char *name);
