/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The bytes of a connection's socket: all of a handshake, and the frames of TCP rails. By the connection's thread.
 */
#include "fabric/private.h"

#define STREAM_PIECES 64

/* What came of one write. */
struct stream_sent {
        uint64_t consumed; /* bytes of the pieces */
        uint64_t wire;
        bool blocked;
        int error; /* errno, or EPROTO */
};

/* Without the lock: what stands in `out`, then the pieces, or a part of that. */
void stream_write(struct fabric_conn *conn, const struct iovec *pieces, int n_pieces, struct stream_sent *sent);
/* With the lock: counts it, and watches the socket or ends the connection. */
void stream_written(struct fabric_conn *conn, const struct stream_sent *sent);
/* With the lock, which it gives away meanwhile: what stands in `out`, as far as the socket takes it. */
void stream_flush(struct fabric_conn *conn);
