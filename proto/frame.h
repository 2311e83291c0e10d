/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * One protobuf message per SOCK_SEQPACKET packet, with file descriptors. See frame.c for the rules.
 * Channels: struct frame_arena bounds what one received message may allocate while it is unpacked.
 */
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_BYTES_MAX        65536u
#define FRAME_FDS_MAX          8u
#define FRAME_FDS_MANY         128u       /* of a client's memory (SESSION_FEATURE_CHUNKS) */
#define FRAME_FDS_PACKET       253u       /* that Linux lets anybody put beside a packet (SCM_MAX_FD) */
#define FRAME_UNPACK_BYTES_MAX (1u << 20) /* what unpacking one message may allocate */

#define SESSION_FEATURE_CHUNKS (UINT64_C(1) << 0) /* memory of kind 2 (session.proto) */
#define SESSION_FEATURE_LIFE   (UINT64_C(1) << 1) /* LifeOpen */
#define SESSION_PROTOCOL_MIN   1u
#define SESSION_PROTOCOL_MAX   1u
#define EXECUTOR_PROTOCOL_MIN  2u
#define EXECUTOR_PROTOCOL_MAX  2u
#define CONTROL_PROTOCOL       1u

/* Positive conditions; negative is an errno of our own side. */
enum {
        FRAME_OK = 0,
        FRAME_E_AGAIN = 1,     /* nothing there / socket buffer full */
        FRAME_E_EOF = 2,       /* peer closed, or ECONNRESET/EPIPE */
        FRAME_E_TRUNCATED = 3, /* MSG_TRUNC or MSG_CTRUNC: peer broke the bounds; fds that arrived are closed */
        FRAME_E_MALFORMED = 4, /* does not unpack, or needs more than FRAME_UNPACK_BYTES_MAX */
        FRAME_E_TOO_LARGE = 5, /* message to send exceeds FRAME_BYTES_MAX */
};
const char *frame_error_text(int condition);

/* Counting allocator for protobuf-c: a bump of a limit, so unpacking cannot take more than it. */
struct frame_arena {
        ProtobufCAllocator allocator; /* pass &arena.allocator to *_free_unpacked */
        size_t used;
        size_t limit;
};
void frame_arena_init(struct frame_arena *arena, size_t limit);

/* Never blocks (MSG_DONTWAIT), never SIGPIPE. fds stay the caller's. */
int frame_send(int socket_fd, const ProtobufCMessage *message, const int *fds, unsigned int n_fds);
/* Receives and unpacks one packet. On FRAME_OK the caller owns *ret_message (free with
 * protobuf_c_message_free_unpacked(m, &arena->allocator)) and ret_fds[0..*ret_n_fds). ret_fds has FRAME_FDS_MAX places.
 */
int frame_receive(int socket_fd, const ProtobufCMessageDescriptor *descriptor, struct frame_arena *arena,
                  ProtobufCMessage **ret_message, int *ret_fds, unsigned int *ret_n_fds);
/* Both, with the packet in memory of the caller's, FRAME_BYTES_MAX bytes, and not on the stack. */
int frame_send_by(void *packet, int socket_fd, const ProtobufCMessage *message, const int *fds, unsigned int n_fds);
int frame_receive_by(void *packet, int socket_fd, const ProtobufCMessageDescriptor *descriptor,
                     struct frame_arena *arena, ProtobufCMessage **ret_message, int *ret_fds, unsigned int *ret_n_fds);
/* The same as frame_receive for a peer that may send descriptors whose close() blocks: nothing is closed here, the
 * caller owns ret_fds[0..*ret_n_fds) whatever is returned. */
int frame_receive_unclosed(int socket_fd, const ProtobufCMessageDescriptor *descriptor, struct frame_arena *arena,
                           ProtobufCMessage **ret_message, int *ret_fds, unsigned int *ret_n_fds);
/* The same with room for all that can lie beside one packet, so that the kernel closes none of them here unless no more
 * can be opened. ret_fds has FRAME_FDS_PACKET places. */
int frame_receive_packet(int socket_fd, const ProtobufCMessageDescriptor *descriptor, struct frame_arena *arena,
                         ProtobufCMessage **ret_message, int *ret_fds, unsigned int *ret_n_fds);
/* The unpack half alone, for fuzzers. */
int frame_unpack(const void *data, size_t size, const ProtobufCMessageDescriptor *descriptor, struct frame_arena *arena,
                 ProtobufCMessage **ret_message);
void frame_close_fds(int *fds, unsigned int n_fds);

/* SOCK_SEQPACKET unix sockets. Return fd or negative errno. Non-blocking, close-on-exec. */
/* Unlinks a stale socket first; umask-proof mode. -EADDRINUSE: somebody listens there, or is about to; who finds that
 * out holds a lock on PATH.lock meanwhile. */
int frame_listen(const char *path, unsigned int mode);
#define FRAME_LOCK_SUFFIX ".lock"
int frame_connect(const char *path);
