/* SPDX-License-Identifier: MIT */
/*
 * The thread of a rail: an epoll loop over its connections, in which the scheduler decides what is handed to sockets.
 *
 * The scheduler has power over what is not yet in a socket only, so not more than the window is unacknowledged on the
 * rail at any time. The bandwidth is measured while the rail is kept busy: acknowledged bytes over the time, if neither
 * queue nor window ran empty meanwhile; the estimate moves by a quarter of the difference, and stays within a tenth and
 * ten times of what the rail is said to have. It may be that of a bad moment; and a rail that others are believed to
 * beat by far gets too little to be measured again. So where nothing is measured the estimate gets old: for each second
 * it comes nearer to what the rail is said to have, by an eighth of what is between them.
 *
 * Looking on. A thread that has had something to do does not sleep at once, where there are processors enough: to be
 * woken takes longer than a step of a request. It looks without the lock, which all rails share: a few that take it
 * each time, a million times a second, leave nothing of it for those that have something to do. When others compute on
 * these processors, which the time between two looks tells, it sleeps all the same (util/yield.h).
 */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "fabric/transport.h"
#include "util/clock.h"

#define RAIL_EVENTS 32
#define MEASURE_NS  UINT64_C(10000000)
#define AGE_NS      UINT64_C(1000000000)
#define TICK_MAX_NS UINT64_C(25000000)
#define TICK_MIN_NS UINT64_C(1000000)
#define QUIET_BYTES 1024u /* that heartbeats and acknowledgements may be of */

void rail_wake(struct fabric_rail *rail) {
        rail->again = true;
        /* relaxed: a thread that looks on takes the lock when it sees it */
        atomic_store_explicit(&rail->called, true, memory_order_relaxed);
        if (rail->asleep) {
                rail->asleep = false;
                rail->waking = true;
                fabric_ring(rail->wake_fd);
        }
}

bool rail_measure(struct fabric_rail *rail, uint64_t now_ns) {
        uint64_t passed_ns = now_ns - rail->measure_ns, measured, least = rail->nominal / 10, most = rail->nominal * 10;

        if (rail->flight_bytes == 0 || rail->starved) {
                /* Idle: the next stretch begins when there is enough to do again. */
                rail->measure_ns = now_ns;
                rail->measure_bytes = 0;
                rail->starved = false;
                return false;
        }
        if (passed_ns < MEASURE_NS)
                return false;
        measured = (uint64_t)((unsigned __int128)rail->measure_bytes * 1000000000u / passed_ns);
        rail->estimate = rail->estimate - rail->estimate / 4 + measured / 4;
        if (rail->estimate < least)
                rail->estimate = least;
        if (rail->estimate > most)
                rail->estimate = most;
        rail->measure_ns = rail->believed_ns = now_ns;
        rail->measure_bytes = 0;
        return true;
}

void rail_age(struct fabric_rail *rail, uint64_t now_ns) {
        if (time_passed(now_ns, rail->believed_ns) < AGE_NS)
                return;
        rail->believed_ns = now_ns;
        rail->estimate = rail->estimate - rail->estimate / 8 + rail->nominal / 8;
}

/* As much as may go. Returns the time at which more may, 0: when something has happened. */
static uint64_t rail_fill(struct fabric_rail *rail, uint64_t now_ns) {
        struct fabric *fabric = rail->fabric;

        while (rail->flight_bytes < rail->window) {
                uint64_t wait_ns = bucket_wait(&rail->bucket, now_ns);
                struct schedule_item *next;
                struct fabric_item *item;
                struct fabric_conn *conn;

                if (wait_ns)
                        return rail->schedule.queued_bytes ? wait_ns : 0;
                next = schedule_pop(&rail->schedule);
                if (!next) {
                        rail->starved |= rail->flight_bytes < rail->window / 2;
                        return 0;
                }
                item = item_of(next);
                if (item->area->gone || item->area->failed) {
                        fabric->counters.dropped++;
                        item_free(fabric, item);
                        continue;
                }
                conn = item->port->conn; /* its port is open, so it is up */
                if (rail->transport->conn_ready && !rail->transport->conn_ready(conn, item)) {
                        DL_APPEND(conn->parked, next);
                        item_unwatch(item); /* what it waits for is that the other end offers its area */
                        continue;
                }
                bucket_spend(&rail->bucket, item->schedule.bytes);
                conn_assign(conn, item);
                conn_shut(conn);
        }
        return 0;
}

/* Idle rails have nothing to look after but peers, which any may have to do in place of one that hangs. */
static bool rail_needs_ticks(const struct fabric_rail *rail) {
        const struct fabric_route *route;

        if (rail->conns || rail->listen_paused || rail->schedule.queued_bytes || HASH_COUNT(rail->fabric->peers) > 0)
                return true;
        DL_FOREACH(rail->routes, route) {
                if (route->health.state != FABRIC_UP)
                        return true;
        }
        return false;
}

/* Of the time since a tick was due, what is not the others' silence, for this thread was not running. A quarter of what
 * is borne counts all the same: so a silent rail is found after a few ticks, however late each of them is. */
static uint64_t rail_missed(const struct fabric_rail *rail, uint64_t now_ns, uint64_t interval_ns) {
        const uint64_t late_ns = now_ns - rail->tick_ns, borne_ns = interval_ns + rail->fabric->deadline_ns / 4;

        return late_ns > borne_ns ? late_ns - borne_ns : 0;
}

static void conn_excuse(struct fabric_conn *conn, uint64_t missed_ns, uint64_t now_ns) {
        conn->heard_ns = now_ns - conn->heard_ns > missed_ns ? conn->heard_ns + missed_ns : now_ns;
        conn->moved_ns = time_passed(now_ns, conn->moved_ns) > missed_ns ? conn->moved_ns + missed_ns : now_ns;
        /* Not added there, or each connection and each rail's thread would add it once more. */
        if (conn->peer && conn->peer->heard_ns < conn->heard_ns)
                conn->peer->heard_ns = conn->heard_ns;
}

/* Time has brought it there. */
static const char *const route_why[] = {[FABRIC_UP] = "the peer has had time to hear of it",
                                        [FABRIC_DOWN] = "it does not come up",
                                        [FABRIC_PROBING] = "the hold-down is over"};

/* Its thread hangs in its adapter, or has much to ask of a slow one, and nobody else sees what its routes are like, nor
 * takes what is given to them. What is on its connections has to wait for it (recover.c); what is not goes over others.
 */
static void rail_give_up(struct fabric_rail *rail, uint64_t now_ns) {
        struct fabric *fabric = rail->fabric;
        struct fabric_route *route;

        rail->stuck = true;
        DL_FOREACH(rail->routes, route) {
                if (route_late(&route->health, &fabric->limits, now_ns))
                        route_changed(fabric, route, "its adapter does not answer");
                else
                        route_replace(fabric, route);
        }
}

/* By whichever rail's thread comes first: each can hang in its adapter, for as long as a minute. */
static void peers_check(struct fabric *fabric, uint64_t now_ns) {
        struct fabric_peer *peer, *tmp;

        fabric->checked_ns = now_ns;
        for (size_t i = 0; i < fabric->n_rails; i++) {
                struct fabric_rail *rail = fabric->rails[i];

                if (!rail->stuck && rail->away_ns && time_passed(now_ns, rail->away_ns) >= fabric->deadline_ns)
                        rail_give_up(rail, now_ns);
        }
        HASH_ITER(hh, fabric->peers, peer, tmp) {
                if (peer->waiting && peer->n_routes > 0)
                        peer_place_waiting(fabric, peer);
                peer_check_reachable(fabric, peer, now_ns);
                if (peer->lost && fabric_tell_lost(fabric, peer))
                        peer->lost = NULL;
                peer->cut_off = 0;
        }
        areas_check_ways(fabric, now_ns);
}

int rails_watch(struct fabric *fabric, uint64_t now_ns) {
        bool hang = true;

        for (size_t i = 0; i < fabric->n_rails; i++) {
                const struct fabric_rail *rail = fabric->rails[i];

                if (!rail->nic)
                        return -1; /* its thread hangs nowhere */
                hang &= rail->away_ns && time_passed(now_ns, rail->away_ns) >= fabric->deadline_ns;
        }
        if (fabric->n_rails == 0 || !fabric->peers)
                return -1;
        if (hang)
                peers_check(fabric, now_ns);
        return (int)(fabric->deadline_ns / 2000000u) + 1;
}

static void rail_tick(struct fabric_rail *rail, uint64_t now_ns, uint64_t interval_ns) {
        struct fabric *fabric = rail->fabric;
        const uint64_t missed_ns = rail_missed(rail, now_ns, interval_ns);
        struct fabric_route *route;
        struct fabric_conn *conn;

        rail->tick_ns = now_ns + interval_ns;
        DL_FOREACH(rail->conns, conn) {
                if (missed_ns && conn->state == CONN_UP)
                        conn_excuse(conn, missed_ns, now_ns);
                conn_tick(conn, now_ns);
        }
        DL_FOREACH(rail->routes, route) {
                if (!rail->enabled)
                        continue;
                if (route_tick(&route->health, &fabric->limits, now_ns))
                        route_changed(fabric, route, route_why[route->health.state]);
                route_check_knocks(fabric, route, now_ns);
                route_hurry(&route->health, route_is_missed(route), now_ns);
        }
        if (rail->listen_paused) {
                struct epoll_event event = {.events = EPOLLIN, .data.ptr = &rail->listen_fd};

                if (epoll_ctl(rail->epoll_fd, EPOLL_CTL_ADD, rail->listen_fd, &event) == 0)
                        rail->listen_paused = false;
        }
        if (time_passed(now_ns, fabric->checked_ns) >= interval_ns)
                peers_check(fabric, now_ns);
        rail_age(rail, now_ns);
}

/* Its adapter is slow: it is to look after all that it has before it goes on, or it would count as hanging. */
static bool rail_lingers(const struct fabric_rail *rail) {
        return rail->spent_ns >= rail->fabric->deadline_ns / 4;
}

static void rail_bury(struct fabric_rail *rail, uint64_t now_ns) {
        struct fabric_conn *conn, *tmp;

        DL_FOREACH_SAFE(rail->conns, conn, tmp) {
                if (rail_lingers(rail)) {
                        rail->again = true;
                        break;
                }
                if (conn->doomed)
                        conn_bury(conn, now_ns);
        }
}

static void rail_work(struct fabric_rail *rail, uint64_t now_ns, uint64_t *ret_next_ns) {
        struct fabric *fabric = rail->fabric;
        bool tell = rail->ack_ns && now_ns >= rail->ack_ns;
        struct fabric_route *route;
        struct fabric_conn *conn;

        if (tell)
                rail->ack_ns = 0;
        rail_bury(rail, now_ns);
        DL_FOREACH(rail->routes, route)
                route_dial(fabric, route, now_ns);
        *ret_next_ns = rail_fill(rail, now_ns);
        DL_FOREACH(rail->conns, conn) {
                if (conn->doomed || conn->state == CONN_CONNECTING || conn->state == CONN_TLS)
                        continue;
                if (conn->state == CONN_UP) {
                        recover_send(fabric, conn);
                        if (rail->transport->conn_work)
                                rail->transport->conn_work(conn);
                        if (tell && conn->told != conn->received)
                                (void)conn_control(conn, FRAME_ACK, 0, 0, 0);
                }
                conn_send(conn);
        }
        /* There may be room again. */
        if (*ret_next_ns == 0 && rail->flight_bytes < rail->window && (rail->schedule.urgent || rail->schedule.others))
                rail->again = true;
}

static void rail_event(struct fabric_rail *rail, const struct epoll_event *event, uint64_t now_ns) {
        struct fabric_conn *conn = event->data.ptr;

        if (event->data.ptr == &rail->listen_fd) {
                rail_accept(rail, now_ns);
                return;
        }
        if (event->data.ptr == &rail->wake_fd) {
                fabric_unring(rail->wake_fd);
                return;
        }
        if (event->data.ptr == &rail->nic_event) {
                rail->transport->rail_event(rail, now_ns);
                return;
        }
        if (conn->doomed)
                return;
        if (conn->state != CONN_UP) {
                conn->ready_out = true;
                conn_shake(conn, now_ns);
                if (conn->doomed || conn->state != CONN_UP)
                        return;
        }
        if ((event->events & EPOLLOUT) || conn->ready_out) {
                conn->ready_out = true;
                conn_watch(conn, EPOLLIN);
        }
        if (event->events & ~(uint32_t)EPOLLOUT || conn->in_end > 0)
                rail->transport->conn_receive(conn, now_ns);
}

static int rail_timeout(const struct fabric_rail *rail, uint64_t now_ns, uint64_t next_ns) {
        uint64_t until_ns = rail_needs_ticks(rail) ? rail->tick_ns : UINT64_MAX;

        if (rail->again)
                return 0;
        if (next_ns && next_ns < until_ns)
                until_ns = next_ns;
        if (rail->ack_ns && rail->ack_ns < until_ns)
                until_ns = rail->ack_ns;
        if (until_ns == UINT64_MAX)
                return -1;
        return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns + 999999u) / 1000000u);
}

/* Without the lock, which others want, until something happens or it is late enough. Returns the number of events. */
static int rail_look_on(struct fabric_rail *rail, struct epoll_event events[RAIL_EVENTS], uint64_t until_ns) {
        struct yielder *looks = &rail->looks;
        uint64_t began_ns, now_ns = clock_now_ns();
        int n;

        do {
                began_ns = now_ns;
                n = epoll_wait(rail->epoll_fd, events, RAIL_EVENTS, 0);
                now_ns = clock_now_ns();
                yielder_note(looks, began_ns, now_ns, YIELDER_LOOKS_REST_NS);
                if (n != 0 || atomic_load_explicit(&rail->called, memory_order_relaxed)) /* partner: rail_wake */
                        break;
                fabric_pause();
        } while (now_ns < until_ns && !yielder_rests(looks, now_ns));
        return n;
}

static uint64_t rail_look_until(int timeout, uint64_t now_ns, uint64_t until_ns) {
        const uint64_t due_ns = timeout < 0 ? UINT64_MAX : now_ns + (uint64_t)timeout * 1000000u;

        return due_ns < until_ns ? due_ns : until_ns;
}

struct worked {
        uint64_t messages, bytes;
};

/* Since the last time: messages, or a part of a long one. Heartbeats are none, since nothing follows them. */
static bool rail_has_worked(const struct fabric_rail *rail, struct worked *last) {
        const struct worked now = {.messages = rail->messages_sent + rail->messages_received,
                                   .bytes = rail->bytes_sent + rail->bytes_received};
        const bool has = now.messages != last->messages || now.bytes - last->bytes > QUIET_BYTES;

        *last = now;
        return has;
}

void *rail_run(void *data) {
        struct fabric_rail *rail = data;
        struct fabric *fabric = rail->fabric;
        struct epoll_event events[RAIL_EVENTS];
        uint64_t interval_ns = fabric->heartbeat_ns / 8, now_ns = clock_now_ns(), next_ns, busy_ns = 0;
        struct worked worked = {0};

        interval_ns = interval_ns > TICK_MAX_NS ? TICK_MAX_NS : interval_ns < TICK_MIN_NS ? TICK_MIN_NS : interval_ns;
        fabric_lock(fabric);
        rail->tick_ns = now_ns;
        while (!fabric->stop) {
                uint64_t until_ns;
                int n, timeout;
                bool looks, pauses;

                rail->again = false;
                atomic_store_explicit(&rail->called, false, memory_order_relaxed); /* set under the lock only */
                if (rail->transport->rail_poll) /* first: what has come was no silence */
                        rail->transport->rail_poll(rail, now_ns);
                if (now_ns >= rail->tick_ns) {
                        /* Others may have had the lock meanwhile, and have written down later times. */
                        now_ns = clock_now_ns();
                        rail_tick(rail, now_ns, interval_ns);
                }
                rail_work(rail, now_ns, &next_ns);
                timeout = rail_timeout(rail, now_ns, next_ns);
                if (rail_has_worked(rail, &worked))
                        busy_ns = now_ns;
                looks = timeout != 0 && now_ns - busy_ns < fabric->rail_spin_ns && !yielder_rests(&rail->looks, now_ns);
                until_ns = rail_look_until(timeout, now_ns, busy_ns + fabric->rail_spin_ns);
                if (looks)
                        timeout = 0;
                if (timeout != 0 && rail->transport->rail_sleep && !rail->transport->rail_sleep(rail, now_ns))
                        timeout = 0;
                rail->asleep = timeout != 0;
                pauses = timeout == 0 && !rail->again && rail->transport->rail_poll;
                pthread_mutex_unlock(&fabric->lock);
                if (looks && !rail->transport->rail_poll)
                        n = rail_look_on(rail, events, until_ns);
                else
                        n = epoll_wait(rail->epoll_fd, events, RAIL_EVENTS, timeout);
                if (pauses && n == 0)
                        fabric_pause(); /* others want the lock */
                fabric_lock(fabric);
                rail->asleep = rail->waking = false;
                if (!rail_needs_ticks(rail))
                        rail->tick_ns = clock_now_ns(); /* none was due */
                now_ns = clock_now_ns();
                rail->spent_ns = 0;
                rail->stuck = false;
                for (int i = 0; i < n && !rail_lingers(rail); i++) /* of the rest it is told again */
                        rail_event(rail, &events[i], now_ns);
        }
        pthread_mutex_unlock(&fabric->lock);
        return NULL;
}

void rail_free(struct fabric_rail *rail) {
        if (!rail)
                return;
        if (rail->transport->rail_close)
                rail->transport->rail_close(rail);
        schedule_deinit(&rail->schedule);
        if (rail->epoll_fd >= 0)
                close(rail->epoll_fd);
        if (rail->listen_fd >= 0)
                close(rail->listen_fd);
        if (rail->wake_fd >= 0)
                close(rail->wake_fd);
        free(rail->scratch);
        free(rail);
}

void rails_free(struct fabric *fabric) {
        for (size_t i = 0; i < fabric->n_rails; i++)
                rail_free(fabric->rails[i]);
        fabric->n_rails = 0;
}
