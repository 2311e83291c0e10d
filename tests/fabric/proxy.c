/* SPDX-License-Identifier: MIT */
#include "tests/fabric/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fabric/rig.h"

#define PROXY_BUFFER 262144u
#define LATE_TURNS   20u /* of the loop, in which others go on meanwhile */

struct proxy_way {
        uint8_t bytes[PROXY_BUFFER];
        uint32_t start, end;
        int64_t left; /* to the next fault; < 0: none */
        bool stuck;   /* something was too long */
};

struct proxy_pair {
        int fds[2]; /* who dialled, who was dialled; -1: closed */
        struct proxy_way ways[2];
        bool stalled, dead;
        int late; /* the end that gets late what is held back, else -1 */
        uint32_t turns;
};

static struct sockaddr_in proxy_address(const struct proxy *proxy, uint16_t port) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

        inet_pton(AF_INET, proxy->address, &address.sin_addr);
        return address;
}

static void proxy_arm(struct proxy *proxy, struct proxy_way *way) {
        uint32_t bytes = proxy->bytes;

        way->left = bytes ? (int64_t)(1 + rig_random(&proxy->seed) % (2 * (uint64_t)bytes)) : -1;
}

static void close_end(int *fd) {
        if (*fd >= 0)
                close(*fd);
        *fd = -1;
}

static void proxy_accept(struct proxy *proxy) {
        struct sockaddr_in to = proxy_address(proxy, proxy->to_port);
        struct proxy_pair *pair;
        int fd = accept4(proxy->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), one = 1;

        if (fd < 0)
                return;
        if (proxy->refuse || proxy->n_pairs == PROXY_PAIRS) {
                close(fd);
                return;
        }
        pair = calloc(1, sizeof(*pair));
        assert_non_null(pair);
        pair->late = -1;
        pair->fds[0] = fd;
        pair->fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(pair->fds[1] >= 0);
        if (connect(pair->fds[1], (struct sockaddr *)&to, sizeof(to)) < 0)
                pair->dead = true;
        for (int i = 0; i < 2; i++) {
                setsockopt(pair->fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
                proxy_arm(proxy, &pair->ways[i]);
        }
        proxy->pairs[proxy->n_pairs++] = pair;
}

static void proxy_break(struct proxy *proxy, struct proxy_pair *pair, int from) {
        static const unsigned int all[] = {PROXY_CUT, PROXY_LATE, PROXY_CORRUPT, PROXY_STALL};
        const unsigned int faults = proxy->faults;
        struct proxy_way *way = &pair->ways[from];
        unsigned int which;

        proxy_arm(proxy, way);
        if (!faults)
                return; /* none any more */
        do
                which = (unsigned int)(rig_random(&proxy->seed) % 4);
        while (!(faults & all[which]));
        proxy->n_faults[which]++;
        switch (all[which]) {
        case PROXY_CUT:
                pair->dead = true;
                break;
        case PROXY_LATE:
                pair->late = 1 - from;
                pair->turns = 0;
                break;
        case PROXY_CORRUPT:
                way->bytes[way->end - 1] ^= (uint8_t)(1u << rig_random(&proxy->seed) % 8);
                break;
        case PROXY_STALL:
                pair->stalled = true;
                break;
        }
}

static void way_move(struct proxy *proxy, struct proxy_pair *pair, int from) {
        struct proxy_way *way = &pair->ways[from];
        int *in = &pair->fds[from], *out = &pair->fds[1 - from];
        ssize_t n;

        if (*in >= 0 && way->end < PROXY_BUFFER) {
                size_t room = PROXY_BUFFER - way->end;

                if (way->left > 0 && pair->late < 0 && (uint64_t)way->left < room)
                        room = (size_t)way->left;
                n = recv(*in, way->bytes + way->end, room, MSG_DONTWAIT);
                if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                        pair->dead = true;
                } else if (n > 0) {
                        way->end += (uint32_t)n;
                        if (way->left > 0 && pair->late < 0) {
                                way->left -= n;
                                if (way->left == 0)
                                        proxy_break(proxy, pair, from);
                        }
                }
        }
        if (pair->late == 1 - from) {
                /* First some messages gather here, then their sender sees the end, then nothing happens for a while. */
                pair->turns++;
                if (pair->turns == LATE_TURNS)
                        close_end(in);
                if (pair->turns < 2 * LATE_TURNS)
                        return;
        }
        if (way->stuck) { /* what comes is thrown away, and the end is seen */
                way->start = way->end = 0;
                return;
        }
        if (proxy->longest > 0 && way->end - way->start > proxy->longest) {
                way->stuck = true;
                way->end = way->start + proxy->longest; /* there may be short ones before it */
        }
        if (*out >= 0 && way->start < way->end) {
                n = send(*out, way->bytes + way->start, way->end - way->start, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (n < 0 && errno != EAGAIN)
                        pair->dead = true;
                else if (n > 0)
                        way->start += (uint32_t)n;
                if (way->start == way->end)
                        way->start = way->end = 0;
        }
}

static void proxy_move(struct proxy *proxy, struct proxy_pair *pair) {
        if (proxy->refuse)
                pair->dead = true;
        if (pair->stalled) {
                char byte;

                /* Both ends give up some time. */
                for (int i = 0; i < 2; i++)
                        if (recv(pair->fds[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
                                pair->dead = true;
                return;
        }
        for (int from = 0; from < 2 && !pair->dead; from++)
                way_move(proxy, pair, from);
}

static void *proxy_run(void *data) {
        struct proxy *proxy = data;

        while (!proxy->stop) {
                struct pollfd fds[2 + 2 * PROXY_PAIRS];
                nfds_t n = 0;
                bool soon = false;

                fds[n++] = (struct pollfd){.fd = proxy->swallows ? -1 : proxy->listen_fd, .events = POLLIN};
                fds[n++] = (struct pollfd){.fd = proxy->wake_fd, .events = POLLIN};
                for (uint32_t i = 0; i < proxy->n_pairs; i++) {
                        struct proxy_pair *pair = proxy->pairs[i];

                        soon |= pair->stalled || pair->late >= 0;
                        for (int e = 0; e < 2; e++) {
                                short events = 0;

                                if (pair->ways[e].end < PROXY_BUFFER)
                                        events |= POLLIN;
                                if (pair->ways[1 - e].start < pair->ways[1 - e].end)
                                        events |= POLLOUT;
                                fds[n++] = (struct pollfd){.fd = pair->stalled ? -1 : pair->fds[e],
                                                           .events = pair->late >= 0 ? 0 : events};
                                if (pair->late >= 0) /* by the clock, as its ends may be ready all the time */
                                        fds[n - 1].fd = -1;
                        }
                }
                (void)poll(fds, n, soon ? 1 : -1);
                if (fds[1].revents) {
                        uint64_t count;

                        assert_int_equal(read(proxy->wake_fd, &count, sizeof(count)), sizeof(count));
                }
                for (uint32_t i = 0; i < proxy->n_pairs;) {
                        struct proxy_pair *pair = proxy->pairs[i];

                        proxy_move(proxy, pair);
                        if (!pair->dead) {
                                i++;
                                continue;
                        }
                        close_end(&pair->fds[0]);
                        close_end(&pair->fds[1]);
                        free(pair);
                        proxy->pairs[i] = proxy->pairs[--proxy->n_pairs];
                }
                if (fds[0].revents && !proxy->swallows)
                        proxy_accept(proxy);
        }
        return NULL;
}

void proxy_start(struct proxy *proxy, const char *address, uint16_t to_port, uint64_t seed) {
        struct sockaddr_in bound;
        socklen_t size = sizeof(bound);

        memset(proxy, 0, sizeof(*proxy));
        proxy->address = address;
        proxy->to_port = to_port;
        proxy->seed = seed;
        bound = proxy_address(proxy, 0);
        proxy->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(proxy->listen_fd >= 0);
        assert_int_equal(bind(proxy->listen_fd, (struct sockaddr *)&bound, sizeof(bound)), 0);
        assert_int_equal(listen(proxy->listen_fd, 64), 0);
        assert_int_equal(getsockname(proxy->listen_fd, (struct sockaddr *)&bound, &size), 0);
        proxy->port = ntohs(bound.sin_port);
        proxy->full_fd = -1;
        proxy->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_true(proxy->wake_fd >= 0);
        assert_int_equal(pthread_create(&proxy->thread, NULL, proxy_run, proxy), 0);
}

/* Linux drops what would open a connection while the queue of those that wait to be accepted is full. */
void proxy_swallow(struct proxy *proxy, bool swallows) {
        const struct sockaddr_in own = proxy_address(proxy, proxy->port);

        proxy->swallows = swallows;
        assert_int_equal(listen(proxy->listen_fd, swallows ? 0 : 64), 0);
        proxy_wake(proxy);
        close_end(&proxy->full_fd);
        if (!swallows)
                return;
        proxy->full_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(proxy->full_fd >= 0);
        assert_int_equal(connect(proxy->full_fd, (const struct sockaddr *)&own, sizeof(own)), 0);
}

void proxy_wake(struct proxy *proxy) {
        const uint64_t one = 1;

        assert_int_equal(write(proxy->wake_fd, &one, sizeof(one)), sizeof(one));
}

void proxy_stop(struct proxy *proxy) {
        proxy->stop = true;
        proxy_wake(proxy);
        pthread_join(proxy->thread, NULL);
        for (uint32_t i = 0; i < proxy->n_pairs; i++) {
                close_end(&proxy->pairs[i]->fds[0]);
                close_end(&proxy->pairs[i]->fds[1]);
                free(proxy->pairs[i]);
        }
        close(proxy->listen_fd);
        close(proxy->wake_fd);
        close_end(&proxy->full_fd);
}
