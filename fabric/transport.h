/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What kinds of rails differ in: how the frames of a connection, and the data of chunks, get to the other end. All
 * kinds make their connections in the same way (dial.c, handshake.c: a TCP socket, TLS, a hello), and what frames mean
 * (message.c), who sends when (schedule.c, rail.c) and what becomes of a dead connection's messages (recover.c) is the
 * same, too. A kind promises that what it was given on one connection arrives in order, whole, and not after
 * conn_end() has returned at the end that receives.
 *
 * All of these are called by the rail's thread with the fabric's lock, and may give it away meanwhile, unless it says
 * otherwise. Those that may be NULL are marked so.
 */
#include "fabric/private.h"

struct transport {
        const char *kind;
        /* NULL: nothing to do. By the owner, without the lock, before there is a thread; as fabric_rail_add(). */
        int (*rail_open)(struct fabric_rail *rail, const struct fabric_rail_options *options);
        void (*rail_close)(struct fabric_rail *rail); /* NULL; the same, after it; also if rail_open() has failed */
        /* NULL: it has nothing but sockets. Something at rail->nic_event was readable. */
        void (*rail_event)(struct fabric_rail *rail, uint64_t now_ns);
        /* NULL. What came without an event. */
        void (*rail_poll)(struct fabric_rail *rail, uint64_t now_ns);
        /* NULL. May the thread sleep until an event? If not, it comes again at once. */
        bool (*rail_sleep)(struct fabric_rail *rail, uint64_t now_ns);

        /* Both ends have proven themselves: conn_up(), at once or when more was agreed. */
        void (*conn_begin)(struct fabric_conn *conn, uint64_t now_ns);
        /* NULL if conn_begin() is enough. Something may be read, in CONN_PAIR. */
        void (*conn_pair)(struct fabric_conn *conn, uint64_t now_ns);
        /* NULL. Whatever was made of it; nothing may arrive any more. */
        void (*conn_end)(struct fabric_conn *conn);
        void (*conn_send)(struct fabric_conn *conn);
        void (*conn_receive)(struct fabric_conn *conn, uint64_t now_ns); /* the socket may be read */
        /* NULL: yes. May this be given to conn_assign() now? If not it waits among conn->parked. */
        bool (*conn_ready)(struct fabric_conn *conn, const struct fabric_item *item);
        /* NULL. Areas have come or gone, or something could not be said before. */
        void (*conn_work)(struct fabric_conn *conn);
        /* NULL. FRAME_OFFER, FRAME_REVOKE, FRAME_REVOKED. */
        void (*conn_heard)(struct fabric_conn *conn, const struct frame *frame);

        /* NULL. By the registrar, without the lock, and may take long. staging: memory_bytes of it. What is to be
         * area->regions[rail->index] (NULL if nothing is needed), or -errno or FABRIC_E_* with a text. */
        int (*area_add)(struct fabric_rail *rail, const struct fabric_area *area, void *staging, void **ret_region,
                        char ret_text[FABRIC_TEXT]);
        /* NULL. By any thread, without the lock: what area_add() has made. */
        void (*area_free)(struct fabric_rail *rail, void *region);
};

extern const struct transport transport_tcp, transport_verbs;
