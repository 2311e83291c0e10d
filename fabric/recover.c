/* SPDX-License-Identifier: MIT */
/*
 * What happens to messages on a connection that died: nothing is lost, nothing is applied twice, nothing late.
 *
 * Every connection has a number that is never used again between two lives of two nodes (the dialler counts), and on it
 * messages have sequences 1, 2, 3 ... in each direction. The receiver applies them in order, so all that it knows of a
 * connection is one number: the highest sequence that it applied. The sender keeps the descriptors of all messages
 * above the acknowledged sequence; their data stay in the area, since the slot is not written again before its credit
 * comes.
 *
 * When a connection ends, each side *buries* it: its thread closes the socket, and then there is a grave with the
 * sender's unacknowledged messages and the receiver's number. The sender may not send them again yet, since the
 * receiver may have applied them. It asks, over any other connection of the two nodes (QUESTION), and the receiver
 * answers with its number (ANSWER), over the same connection. Up to there all were applied and are done; all after it
 * are given to rails again.
 *
 * The receiver answers from graves only. If the connection still lives at its side (it heard nothing of the end), it is
 * doomed first, and its thread buries it; the answer waits for that grave. So when the sender hears the number, the
 * receiver has closed the socket and stopped reading: bytes of the dead connection that are still under way find
 * nobody. Therefore
 *   - nothing is lost: what is above the number was not applied, and is sent again;
 *   - nothing is twice: what is up to the number is not sent again, what is above was not and will not be applied from
 *     the old connection. If the answer itself is lost, the question is repeated and the answer is the same, as a
 *     buried connection applies nothing;
 *   - nothing is late: a slot's next chunk is only written after the credit for the last one, so after it was applied,
 *     so (as no copy of it is left anywhere but below a number) nothing old can arrive for that slot any more. A chunk
 *     of which a part had arrived is written once more with the same bytes, into a slot whose flag nobody has raised.
 * Credits only ever rise, so for them any order would do.
 *
 * A connection that dies takes questions that it carried, and their answers, with it: they are asked again on the next.
 * Who has nothing to ask says so (FORGET) until the other has heard it, and a grave that nobody needs is filled in: a
 * word that is lost with its connection is said again on the next, a few at a time: where connections die faster than
 * they could all be said, they must not take the place of what is to be sent. Who has said so, and waits for the same
 * from the other, says it once more on each new connection: the other may have given up its grave. There are
 * FABRIC_GRAVES of them at most; a question for one that was given up by then is answered with "I know nothing", and
 * what was unacknowledged on it is lost: better that than twice. It takes so many dead connections between a question
 * and its answer. So it is where there is no memory for a grave; the owner is told in both cases (peer->lost), since
 * somebody waits for these messages.
 *
 * A dialler sends no message before it was answered, and remembers each connection on which it said hello, so what
 * either side could ask for is known to the other. If the other never read that hello, it has nothing to forget: it
 * says so (FORGET_STRANGE), and from then on lets no connection begin that has this number or a lower one, so that it
 * cannot read it later, and have questions after all. Those that were just beginning are dialled again, with new
 * numbers.
 */
#include <assert.h>
#include <limits.h>
#include <utlist.h>

#include "fabric/private.h"

struct fabric_grave *grave_find(struct fabric_peer *peer, uint64_t number) {
        struct fabric_grave *grave;

        DL_FOREACH(peer->graves, grave) {
                if (grave->number == number)
                        return grave;
        }
        return NULL;
}

static void grave_free(struct fabric *fabric, struct fabric_peer *peer, struct fabric_grave *grave) {
        struct schedule_item *item, *tmp;

        DL_FOREACH_SAFE(grave->items, item, tmp) {
                DL_DELETE(grave->items, item);
                fabric->counters.dropped++;
                item_free(fabric, item_of(item));
        }
        DL_DELETE(peer->graves, grave);
        peer->n_graves--;
        fabric->counters.graves--;
        free(grave);
}

void graves_free(struct fabric *fabric, struct fabric_peer *peer) {
        while (peer->graves)
                grave_free(fabric, peer, peer->graves);
}

/* Neither side needs it any more. */
static bool grave_done(const struct fabric_grave *grave) {
        return !grave->items && !grave->ask && !grave->asked_on && !grave->forget && !grave->forget_on &&
               !grave->answer_on && !grave->heard_on && (grave->forgotten || grave->unknown);
}

static void recover_wake(struct fabric *fabric, struct fabric_peer *peer) {
        (void)fabric;
        peer->grave_work = true;
        for (size_t i = 0; i < peer->n_routes; i++)
                rail_wake(peer->routes[i]->rail);
}

static struct fabric_conn *peer_find_conn(const struct fabric_peer *peer, uint64_t number) {
        struct fabric_conn *conn;

        for (size_t i = 0; i < peer->n_routes; i++) {
                DL_FOREACH(peer->routes[i]->rail->conns, conn) {
                        if (conn->peer == peer && conn->number == number && !conn->knock)
                                return conn;
                }
        }
        return NULL;
}

/* There may be no message of ours left: then there is nothing to ask. */
static void grave_look(struct fabric_grave *grave) {
        grave->ask = grave->items != NULL;
        grave->forget = !grave->ask;
}

void graves_drop_gone(struct fabric *fabric, struct fabric_peer *peer) {
        struct fabric_grave *grave;

        DL_FOREACH(peer->graves, grave) {
                items_drop_gone(fabric, &grave->items);
                if (!grave->ask || grave->items)
                        continue; /* one that has been asked about is answered */
                grave_look(grave);
                recover_wake(fabric, peer);
        }
}

static bool peer_has_conn(const struct fabric_peer *peer, uint64_t number) {
        return peer_find_conn(peer, number) != NULL;
}

/* How much a grave would be missed. One with messages of ours must stay. What is still to be said on a connection is
 * waited for there. If they might ask, what was taken would be lost with it; if they will not, they only wait for us to
 * say the same, and say it once more on their next connection. */
static int grave_worth(const struct fabric_grave *grave) {
        if (grave->items)
                return INT_MAX;
        return (grave->answer_on || grave->heard_on ? 4 : 0) + (grave->forgotten || grave->unknown ? 0 : 2) +
               (grave->received > 0 ? 1 : 0);
}

static void graves_make_room(struct fabric *fabric, struct fabric_peer *peer) {
        struct fabric_grave *grave, *worst = NULL;
        struct fabric_conn *conn;

        if (peer->n_graves < FABRIC_GRAVES)
                return;
        DL_FOREACH(peer->graves, grave) {
                if (!worst || grave_worth(grave) < grave_worth(worst))
                        worst = grave;
        }
        if (!worst || worst->items)
                return;
        conn = worst->forget_on ? peer_find_conn(peer, worst->forget_on) : NULL;
        if (conn)
                conn->n_forgets--; /* what it hears of this one will be nobody's */
        grave_free(fabric, peer, worst);
}

static void grave_add(struct fabric *fabric, struct fabric_peer *peer, struct fabric_grave *grave) {
        DL_APPEND(peer->graves, grave);
        peer->n_graves++;
        fabric->counters.graves++;
}

/* Of a connection that is not known here. NULL: no memory. */
static struct fabric_grave *grave_new(struct fabric *fabric, struct fabric_peer *peer, uint64_t number) {
        struct fabric_grave *grave = calloc(1, sizeof(*grave));

        if (!grave)
                return NULL;
        graves_make_room(fabric, peer);
        grave->number = number;
        grave->unknown = true;
        grave_add(fabric, peer, grave);
        return grave;
}

/* That their way does not last, or what became of them is not said: see peer_watch_ends(). */
static void items_watch(struct schedule_item *items) {
        struct schedule_item *item;

        DL_FOREACH(items, item) {
                struct fabric_watch *watch = item_watch(item_of(item));

                if (item_of(item)->again)
                        continue;
                item_of(item)->again = 1 + !watch->watched;
                watch->n_again[!watch->watched]++;
        }
}

void item_unwatch(struct fabric_item *item) {
        if (item->again)
                item_watch(item)->n_again[item->again - 1]--;
        item->again = 0;
}

void grave_dig(struct fabric *fabric, struct fabric_conn *conn) {
        struct fabric_peer *peer = conn->peer;
        struct fabric_grave *grave, *other;

        if (conn->knock || conn->number == 0 || conn->state < CONN_HELLO)
                return; /* no message was on it, nor what is said of others */
        /* What it carried is to be said again, answers to what came on it are not missed by anyone. */
        DL_FOREACH(peer->graves, other) {
                if (other->answer_on == conn->number)
                        other->answer_on = 0;
                if (other->heard_on == conn->number)
                        other->heard_on = 0;
                if (other->forget_on == conn->number) {
                        other->forget_on = 0;
                        other->forget = true;
                        peer->grave_work = true;
                }
                if (other->asked_on == conn->number) {
                        other->asked_on = 0;
                        grave_look(other);
                        peer->grave_work = true;
                }
        }
        items_drop_gone(fabric, &conn->unacked);
        graves_make_room(fabric, peer);
        grave = calloc(1, sizeof(*grave));
        if (!grave) {
                struct schedule_item *item, *tmp;

                /* Without it there is no way to know; the peer will hear that we know nothing. */
                if (conn->unacked)
                        peer->lost = "messages to it are lost: no memory";
                DL_FOREACH_SAFE(conn->unacked, item, tmp) {
                        DL_DELETE(conn->unacked, item);
                        fabric->counters.dropped++;
                        item_free(fabric, item_of(item));
                }
                return;
        }
        grave->number = conn->number;
        grave->received = conn->received;
        if (conn->question_on && peer_has_conn(peer, conn->question_on))
                grave->answer_on = conn->question_on;
        if (conn->forgotten_on) {
                grave->forgotten = true;
                if (peer_has_conn(peer, conn->forgotten_on))
                        grave->heard_on = conn->forgotten_on;
        }
        items_watch(conn->unacked);
        grave->items = conn->unacked;
        conn->unacked = NULL;
        grave_look(grave);
        grave_add(fabric, peer, grave);
        recover_wake(fabric, peer);
}

void recover_begin(struct fabric_peer *peer) {
        struct fabric_grave *grave;

        DL_FOREACH(peer->graves, grave) {
                if (!grave->items && !grave->asked_on && !grave->forget_on && !grave->forgotten && !grave->unknown)
                        grave->forget = true;
        }
        peer->grave_work = peer->graves != NULL;
}

void recover_send(struct fabric *fabric, struct fabric_conn *conn) {
        struct fabric_peer *peer = conn->peer;
        struct fabric_grave *grave, *tmp;
        bool left = false;

        if (!peer->grave_work)
                return;
        DL_FOREACH_SAFE(peer->graves, grave, tmp) {
                if (grave->ask) {
                        if (!conn_control(conn, FRAME_QUESTION, grave->number, 0, 0))
                                return; /* full; goes on when something was sent */
                        grave->ask = false;
                        grave->asked_on = conn->number;
                }
                if (grave->answer_on == conn->number) {
                        if (!conn_control(conn, FRAME_ANSWER, grave->number, grave->received, grave->unknown))
                                return;
                        grave->answer_on = 0;
                }
                if (grave->forget && conn->n_forgets < CONN_FORGETS) {
                        assert(!grave->items && !grave->asked_on); /* else the answer would find nobody */
                        if (!conn_control(conn, FRAME_FORGET, grave->number, 0, FORGET_TELL))
                                return;
                        grave->forget = false;
                        grave->forget_on = conn->number;
                        conn->n_forgets++;
                }
                if (grave->heard_on == conn->number) {
                        if (!conn_control(conn, FRAME_FORGET, grave->number, 0,
                                          grave->strange ? FORGET_STRANGE : FORGET_HEARD))
                                return;
                        grave->heard_on = 0;
                }
                if (grave_done(grave))
                        grave_free(fabric, peer, grave);
                else
                        left |= grave->forget || grave->answer_on != 0 || grave->heard_on != 0;
        }
        peer->grave_work = left; /* another connection has to say the rest, or this one later */
}

void recover_question(struct fabric *fabric, struct fabric_conn *conn, uint64_t number) {
        struct fabric_peer *peer = conn->peer;
        struct fabric_grave *grave = grave_find(peer, number);
        struct fabric_conn *old = grave ? NULL : peer_find_conn(peer, number);

        if (old == conn)
                return; /* nonsense */
        if (old) {
                conn_doom(old, true, "the peer says that it is dead");
                old->question_on = conn->number;
                return;
        }
        if (!grave) {
                grave = grave_new(fabric, peer, number);
                if (!grave) {
                        conn_doom(conn, false, "no memory for an answer"); /* then they ask again */
                        return;
                }
        }
        grave->answer_on = conn->number;
        recover_wake(fabric, peer);
}

void recover_answer(struct fabric *fabric, struct fabric_conn *conn, const struct frame *frame) {
        struct fabric_peer *peer = conn->peer;
        struct fabric_grave *grave = grave_find(peer, frame->key);
        struct schedule_item *item, *tmp, *again = NULL;

        if (!grave || grave->asked_on != conn->number)
                return; /* nobody asked */
        grave->asked_on = 0;
        if (frame->value != 0) {
                grave->forgotten = true;
                if (grave->items)
                        peer->lost = "messages to it are lost: it has forgotten a connection";
        } else {
                DL_FOREACH_SAFE(grave->items, item, tmp) {
                        if (item_of(item)->sequence <= frame->line_offset)
                                continue;
                        DL_DELETE(grave->items, item);
                        item_of(item)->port->n_retransmitted++;
                        fabric->counters.retransmitted++;
                        DL_APPEND(again, item);
                }
        }
        DL_FOREACH_SAFE(grave->items, item, tmp) {
                DL_DELETE(grave->items, item);
                if (frame->value != 0)
                        fabric->counters.dropped++;
                else
                        traffic_out(item_of(item));
                item_free(fabric, item_of(item));
        }
        grave->forget = true;
        recover_wake(fabric, peer);
        DL_FOREACH_SAFE(again, item, tmp) {
                DL_DELETE(again, item);
                item->prev = item->next = NULL;
                item_place(fabric, item_of(item));
        }
}

/* They say that they will not ask for this one. */
static void recover_told(struct fabric *fabric, struct fabric_conn *conn, uint64_t number) {
        struct fabric_peer *peer = conn->peer;
        struct fabric_grave *grave = grave_find(peer, number);
        struct fabric_conn *old = grave ? NULL : peer_find_conn(peer, number);

        if (old == conn)
                return; /* nonsense */
        if (grave) {
                grave->forgotten = true;
                grave->heard_on = conn->number;
                recover_wake(fabric, peer);
        } else if (old) {
                conn_doom(old, true, "the peer says that it is dead");
                old->forgotten_on = conn->number;
        } else {
                if (!peer->dials && number > peer->strange_number)
                        peer->strange_number = number;
                if (conn_control(conn, FRAME_FORGET, number, 0, FORGET_STRANGE))
                        return;
                grave = grave_new(fabric, peer, number); /* until there is room */
                if (!grave) {
                        conn_doom(conn, false, "no memory for an answer"); /* then they say it again */
                        return;
                }
                grave->strange = true;
                grave->heard_on = conn->number;
                recover_wake(fabric, peer);
        }
}

void recover_forget(struct fabric *fabric, struct fabric_conn *conn, const struct frame *frame) {
        struct fabric_grave *grave;

        if (frame->value == FORGET_TELL) {
                recover_told(fabric, conn, frame->key);
                return;
        }
        if (frame->value > FORGET_STRANGE) {
                conn_malformed(conn, "the peer says something else of a dead connection than is known here");
                return;
        }
        grave = grave_find(conn->peer, frame->key);
        if (!grave || grave->forget_on != conn->number)
                return; /* nobody has said so */
        grave->forget_on = 0;
        conn->n_forgets--;
        grave->forgotten = grave->forgotten || frame->value == FORGET_STRANGE;
        if (grave_done(grave))
                grave_free(fabric, conn->peer, grave);
}
