/* SPDX-License-Identifier: MIT */
#pragma once
/* The tree of everything railmuxd holds. One loop thread owns all of it. */
#include "daemon/config.h"
#include "daemon/gpu_probe.h"
#include "daemon/loop_watch.h"
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct closer;
struct cluster;
struct comm;
struct comm_leftover;
struct comm_plan;
struct control;
struct control_drain;
struct executor_link;
struct fdstore;
struct forget;
struct launcher;
struct listener;
struct manager_refresh;
struct notify;
struct options;
struct session;
struct state;
struct tenant;
struct tombstone;

#define MANAGER_RANKS_MAX  64u
#define MANAGER_GPUS_MAX   64u
#define MANAGER_LINKS_MAX  64u
#define MANAGER_PACKED_MAX 1000000u

struct manager_counters {
        uint64_t sessions_opened, sessions_closed, sessions_dropped, sessions_refused, sessions_adopted;
        uint64_t comms_created, comms_failed, comms_freed;
        uint64_t calls, protocol_errors, accept_errors;
        uint64_t executor_losses, executor_connects;
        uint64_t reaches_refused;
        uint64_t plans_chosen; /* not found among those that are kept */
};

struct manager {
        /* owner */
        const struct options *options; /* command line; owned by main */
        struct config *config;         /* in force; owned by main */

        /* identity */
        uint64_t started_ns; /* CLOCK_MONOTONIC */
        uint64_t restarts;   /* adoptions since the node's first start */
        uint32_t n_gpus;     /* GPUs served: 0 .. n_gpus - 1 */
        bool on_device;      /* real ones, each with an executor of its own */
        uint64_t unserved;   /* mask of GPUs that are served no more, as long as a predecessor's executors have them */
        uint32_t unserved_slot[MANAGER_LINKS_MAX]; /* ... and their records */
        char no_gpus[GPU_PROBE_TEXT];              /* why backend auto emulates GPUs; "": it does not */
        /* Descriptors of memory that lie in bundles (util/bundle.h). They count against the limit of those that this
         * user may have in sockets, which every message with descriptors needs, too. */
        uint32_t n_packed, packed_max;

        /* parts, in the order they are made */
        struct event_base *base;
        struct notify *notify; /* to the service manager */
        struct closer *closer;
        struct closer *socket_closer; /* of clients' sockets that carry no descriptors */
        struct closer *memory_closer; /* of memory, which never has to wait for what clients sent */
        struct fdstore *fdstore;      /* NULL once start-up is over */
        struct forget *forget;        /* of names that leave the store of the service manager */
        struct state *state;
        struct tenant *tenants;          /* utlist */
        struct charge_account whole;     /* what they hold together */
        struct executor_link *links;     /* utlist; one per executor that should exist */
        struct executor_link *strangers; /* utlist; connections that have not said HELLO */
        struct launcher *launcher;
        struct session *sessions;  /* uthash by id */
        struct session *greetings; /* utlist; connections that have not said HELLO */
        struct comm *comms;        /* uthash by number, joining ones included */
        struct comm *comms_by_id;  /* uthash by 128-byte id; split comms are not in it */
        struct tombstone *tombstones;
        struct comm_leftover *leftovers; /* utlist: staging of comms that have gone, see comm_device.c */
        struct comm_plan *plans;         /* uthash: those that were chosen, see comm_plan.c */
        struct listener *client_listener;
        struct listener *executor_listener;
        struct control *control;      /* control_new(manager, &control), takes "control" from fdstore or listens */
        struct control_drain *drains; /* utlist: operators wait for these */

        struct cluster *cluster; /* NULL: this node is alone, see cluster.c */

        struct event *reach_event; /* reach.c */
        uint64_t reach_last;       /* the session that had its turn last */
        struct event *term_event, *int_event, *hup_event, *watchdog_event, *launch_event, *place_event;
        struct event *life_event; /* session_life.c */
        uint64_t life_last;       /* the session that was looked at last */
        uint64_t life_looks;      /* session_life_look() so far */
        struct manager_refresh *refreshes;
        struct event *refresh_event;
        bool stalls_asked;   /* statistics are under way to complete reports of stalls */
        bool barrier_failed; /* the last fd store barrier; logged once */
        uint64_t barrier_ns; /* ... and how long there is none: record_barrier() */
        bool stopping;       /* an orderly stop: the fd store and the state stay as they are */

        struct manager_counters counters;
        struct loop_watch watch;
};

int manager_new(struct config *config, const struct options *options, struct manager **ret_manager);
struct manager *manager_free(struct manager *manager);
/* Dispatches until SIGTERM or SIGINT. */
int manager_run(struct manager *manager);
void manager_stop(struct manager *manager);

/* Loads the configuration whole, then swaps limits, log level, stall bound, constants of the cost model, and the
 * certificates for other nodes; what is known of the machine is forgotten. 0, with a text on what else has changed and
 * waits for the next start, or "", or -errno with a text and nothing changed. */
int manager_reload(struct manager *manager, char text[CONFIG_ERROR_MAX]);

/* Asks every connected executor for statistics; done() is called from the loop when all have said what they counted
 * after this (the values then lie in comm->statistics and link->counters) or after 250 ms, whichever comes first; at
 * once if no executor is ready. Cancel with manager_refresh_cancel before data dies. See manager_refresh.c. */
int manager_refresh(struct manager *manager, void (*done)(void *data), void *data);
void manager_refresh_cancel(struct manager *manager, void *data);
void manager_refresh_free(struct manager *manager); /* all that are left */
/* An executor has answered its query, or will not. */
void manager_refresh_answered(struct executor_link *link);
void manager_refresh_dropped(struct executor_link *link);
void manager_refresh_turn(evutil_socket_t fd, short what, void *data); /* of refresh_event */

/* Worker threads of the host executor, for the cost model. */
uint32_t manager_workers(const struct manager *manager);
/* Part of manager_new: does the predecessor's state belong to this backend; finds GPUs, makes the links. 0 or -errno.
 */
bool manager_state_fits(const struct manager *manager);
int manager_new_links(struct manager *manager);
const char *manager_backend(const struct manager *manager); /* "host", "hip" */
/* The PCI address of a GPU; empty for emulated ones, or while it is not known. */
const char *manager_gpu_pci(struct manager *manager, uint32_t gpu);
/* Executors or staging have become free: comms that wait for them are tried again, from the loop. */
void manager_place_later(struct manager *manager);
/* "running", "degraded" (an executor is missing), "draining". */
const char *manager_state_name(const struct manager *manager);
struct session *manager_session(struct manager *manager, uint64_t session);
struct comm *manager_comm(struct manager *manager, uint64_t comm);
uint64_t manager_links_mask(const struct manager *manager); /* all executors that should exist */
/* The executor that serves a GPU; NULL if none does. */
struct executor_link *manager_link_of_gpu(struct manager *manager, uint32_t gpu);
