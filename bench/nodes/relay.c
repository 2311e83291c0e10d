/* SPDX-License-Identifier: MIT */
/*
 * Long cables between processes of one machine, for machines on which nobody may delay packets: whoever connects to
 * one of the relay's addresses is connected to another one, and what goes through, either way, comes later by as much
 * as asked for. Nothing is lost, nothing overtakes.
 *
 *   relay FROM=TO...          FROM, TO: ADDRESS:PORT, IPv4
 *
 * Prints "ready", and then reads delays in microseconds, one a line, from standard input; each is answered by itself.
 * Ends with its input. A connection takes up to QUEUE_MAX bytes each way: a delay times a rate of more than that is a
 * bound on the rate.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"

#define CABLES_MAX 256u
#define CALLS_MAX  1024u
#define QUEUE_MAX  (64u << 20)
#define PIECE      (256u << 10)

struct piece {
        struct piece *next;
        uint64_t due_ns;
        size_t bytes, done;
        char data[];
};

/* From socket to socket; two of them are a connection. */
struct way {
        struct piece *first, **end;
        size_t queued;
        bool ended; /* nothing more comes in */
};

struct call {
        int fd[2];
        struct way way[2]; /* way i: what comes in at fd[i] */
};

static struct {
        int fd;
        struct sockaddr_in to;
} cables[CABLES_MAX];
static uint32_t n_cables, n_calls;
static struct call calls[CALLS_MAX];
static uint64_t delay_ns;

static bool address_of(char *text, struct sockaddr_in *ret_address) {
        char *colon = strchr(text, ':');

        *ret_address = (struct sockaddr_in){.sin_family = AF_INET};
        if (!colon)
                return false;
        *colon = '\0';
        ret_address->sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
        return ret_address->sin_port && inet_pton(AF_INET, text, &ret_address->sin_addr) == 1;
}

static bool cable_open(char *text) {
        char *to = strchr(text, '=');
        struct sockaddr_in from;
        int one = 1;

        if (!to || n_cables == CABLES_MAX)
                return false;
        *to++ = '\0';
        if (!address_of(text, &from) || !address_of(to, &cables[n_cables].to))
                return false;
        cables[n_cables].fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)setsockopt(cables[n_cables].fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (bind(cables[n_cables].fd, (struct sockaddr *)&from, sizeof(from)) < 0 ||
            listen(cables[n_cables].fd, 64) < 0)
                return false;
        n_cables++;
        return true;
}

static void call_begin(uint32_t cable) {
        struct call *call = &calls[n_calls];
        int one = 1;

        call->fd[0] = accept4(cables[cable].fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (call->fd[0] < 0)
                return;
        call->fd[1] = n_calls < CALLS_MAX - 1 ? socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
        if (call->fd[1] < 0 ||
            (connect(call->fd[1], (struct sockaddr *)&cables[cable].to, sizeof(cables[cable].to)) < 0 &&
             errno != EINPROGRESS)) {
                close(call->fd[0]);
                if (call->fd[1] >= 0)
                        close(call->fd[1]);
                return;
        }
        for (int i = 0; i < 2; i++) {
                (void)setsockopt(call->fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
                call->way[i] = (struct way){.end = &call->way[i].first};
        }
        n_calls++;
}

static void call_end(struct call *call) {
        for (int i = 0; i < 2; i++) {
                close(call->fd[i]);
                for (struct piece *piece = call->way[i].first, *next; piece; piece = next) {
                        next = piece->next;
                        free(piece);
                }
        }
        *call = calls[--n_calls];
        for (int i = 0; i < 2; i++)
                if (!call->way[i].first)
                        call->way[i].end = &call->way[i].first;
}

/* False: it is over. */
static bool way_take(struct way *way, int fd) {
        struct piece *piece = malloc(sizeof(*piece) + PIECE), *less;
        ssize_t n;

        if (!piece)
                return false;
        n = read(fd, piece->data, PIECE);
        if (n <= 0) {
                free(piece);
                way->ended = n == 0;
                return n == 0 || errno == EAGAIN || errno == EINTR;
        }
        less = realloc(piece, sizeof(*piece) + (size_t)n);
        piece = less ? less : piece;
        *piece = (struct piece){.due_ns = clock_now_ns() + delay_ns, .bytes = (size_t)n};
        *way->end = piece;
        way->end = &piece->next;
        way->queued += piece->bytes;
        return true;
}

/* What is due. False: it is over. */
static bool way_give(struct way *way, int fd, uint64_t now_ns, bool *ret_full) {
        *ret_full = false;
        while (way->first && way->first->due_ns <= now_ns) {
                struct piece *piece = way->first;
                ssize_t n = send(fd, piece->data + piece->done, piece->bytes - piece->done, MSG_NOSIGNAL);

                if (n < 0) {
                        *ret_full = errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
                        return *ret_full;
                }
                piece->done += (size_t)n;
                way->queued -= (size_t)n;
                if (piece->done < piece->bytes)
                        continue;
                way->first = piece->next;
                if (!way->first)
                        way->end = &way->first;
                free(piece);
        }
        if (!way->first && way->ended)
                (void)shutdown(fd, SHUT_WR);
        return true;
}

int main(int argc, char **argv) {
        static struct pollfd fds[1 + CABLES_MAX + 2 * CALLS_MAX];

        for (int i = 1; i < argc; i++)
                if (!cable_open(argv[i])) {
                        fprintf(stderr, "relay: %s is not ADDRESS:PORT=ADDRESS:PORT, or cannot be listened at\n",
                                argv[i]);
                        return 1;
                }
        puts("ready");
        fflush(stdout);
        for (;;) {
                uint64_t now_ns = clock_now_ns(), next_ns = UINT64_MAX;
                struct timespec wait;
                uint32_t n = 0;

                fds[n++] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
                for (uint32_t i = 0; i < n_cables; i++)
                        fds[n++] = (struct pollfd){.fd = cables[i].fd, .events = POLLIN};
                for (uint32_t i = 0; i < n_calls;) {
                        struct call *call = &calls[i];
                        short events[2] = {0};
                        bool good = true;

                        for (int k = 0; good && k < 2; k++) {
                                bool full;

                                good = way_give(&call->way[k], call->fd[!k], now_ns, &full);
                                if (!call->way[k].ended && call->way[k].queued < QUEUE_MAX)
                                        events[k] |= POLLIN;
                                if (full)
                                        events[!k] |= POLLOUT;
                                else if (call->way[k].first && call->way[k].first->due_ns < next_ns)
                                        next_ns = call->way[k].first->due_ns;
                        }
                        if (!good || (call->way[0].ended && call->way[1].ended && !call->way[0].queued &&
                                      !call->way[1].queued)) {
                                call_end(call);
                                continue;
                        }
                        for (int k = 0; k < 2; k++)
                                fds[n++] = (struct pollfd){.fd = call->fd[k], .events = events[k]};
                        i++;
                }
                now_ns = clock_now_ns();
                next_ns = next_ns > now_ns ? next_ns - now_ns : 0;
                wait = (struct timespec){.tv_sec = (time_t)(next_ns / 1000000000),
                                         .tv_nsec = (long)(next_ns % 1000000000)};
                if (ppoll(fds, n, next_ns > UINT64_C(3600000000000) ? NULL : &wait, NULL) < 0 && errno != EINTR)
                        return 1;
                if (fds[0].revents) {
                        char line[32];

                        if (!fgets(line, sizeof(line), stdin))
                                return 0;
                        delay_ns = strtoull(line, NULL, 10) * 1000;
                        fputs(line, stdout);
                        fflush(stdout);
                }
                for (uint32_t i = n_calls;
                     i-- > 0;) { /* from the end, as the last one takes the place of one that ends */
                        const struct pollfd *two = &fds[1 + n_cables + 2 * i];
                        bool good = true;

                        for (int k = 0; good && k < 2; k++)
                                if (two[k].revents & (POLLIN | POLLHUP | POLLERR) && !calls[i].way[k].ended &&
                                    calls[i].way[k].queued < QUEUE_MAX)
                                        good = way_take(&calls[i].way[k], calls[i].fd[k]);
                        if (!good)
                                call_end(&calls[i]);
                }
                for (uint32_t i = 0; i < n_cables; i++)
                        if (fds[1 + i].revents)
                                call_begin(i);
        }
}
