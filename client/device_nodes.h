/* SPDX-License-Identifier: MIT */
#pragma once
/* Requests of a communicator over several nodes that are made of others. See device_nodes.c. */
#include <stdbool.h>
#include <stdint.h>

struct rmx_comm;
struct rmx_comm_options;

/* Both belong to the communicator whose nodes these are, but for `across` if it is that one itself. */
struct device_nodes {
        struct rmx_comm *local;  /* this node's ranks; NULL: each node has one */
        struct rmx_comm *across; /* those that have the same place among their nodes' ranks */
        uint64_t min, max;       /* bytes that `local` exchanges on every node */
        bool in_rows;            /* the ranks are numbered node by node */
        _Atomic uint32_t torn;   /* the status of device_nodes_tear, 0: none */
};

/* The end of a join, on all ranks or on none, after device_exchange_join; as that. */
int device_nodes_join(struct rmx_comm *comm, const char *what, bool wanted, const struct rmx_comm_options *options,
                      uint64_t deadline_ns);
/* What its communicators, or their kernels, met; the rank is that of `comm`, and it has failed with that. 0: nothing.
 * Waits for a second at most where that does not say why. Not with device->mutex. */
uint32_t device_nodes_status(struct rmx_comm *comm);
/* The same as it stands, without any effect. */
uint32_t device_nodes_look(const struct rmx_comm *comm);
/* Does such a status not say why yet? */
bool device_nodes_waits(struct rmx_comm *comm, uint32_t status);
/* The result of a request of this communicator, which has nodes, that has ended. *status: of the comm's own kernels.
 * False: it is not known yet. With device->mutex; afterwards, without it, device_nodes_found for any but RMX_OK. */
bool device_nodes_result(struct rmx_comm *comm, uint32_t *status);
/* It has failed with this, and so for all ranks. Returns what it has failed with first. Not with device->mutex. */
uint32_t device_nodes_found(struct rmx_comm *comm, uint32_t status);
/* Of a request of several some are on the stream, and the rest cannot be put there: RMX_*. Made once more it would meet
 * what others have left of the first one, so nothing is put there any more. */
void device_nodes_tear(struct rmx_comm *comm, int error);
/* device_end for its communicators. */
void device_nodes_end(struct rmx_comm *comm);
/* The daemon has said that the comm has failed: ends those that it is made of, or, as long as that is not said of it
 * too, what it is a part of. With rpc.mutex. */
void device_nodes_failed(struct rmx_comm *comm);
void device_nodes_abort(struct rmx_comm *comm, const char *what);
/* The comm goes away; nothing of it is under way, as far as can be told (device_finish). */
void device_nodes_part(struct rmx_comm *comm, const char *what);
