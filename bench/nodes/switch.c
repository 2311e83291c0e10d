/* SPDX-License-Identifier: MIT */
/*
 * A switch with long cables, for machines whose kernel cannot delay packets: Ethernet frames from each of its taps go
 * to the one that their address belongs to, later by as much as asked for. Nothing is lost, nothing overtakes.
 *
 *   switch TAP...
 *
 * Makes the taps in the network namespace that it is started in, prints "ready", and then reads delays in microseconds,
 * one a line, from standard input; each is answered by itself. Ends with its input. A tap may be moved to another
 * namespace. Segments that are larger than frames (TSO) pass as they are, so the switch is not what takes time.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "util/clock.h"

#define TAPS_MAX  16u
#define FRAME_MAX (65536u + 64u)
#define ADDRESS   6u
#define HEAD      sizeof(struct virtio_net_hdr)
#define ROUND     64u /* frames taken from a tap before the others have their turn */

struct frame {
        struct frame *next;
        uint64_t due_ns;
        uint32_t bytes;
        uint8_t data[]; /* struct virtio_net_hdr, then Ethernet's */
};

struct tap {
        int fd;
        uint8_t address[ADDRESS]; /* of who is behind it */
        struct frame *first, **end;
};

static struct tap taps[TAPS_MAX];
static uint32_t n_taps;
static uint64_t delay_ns;

/* False, and says so. */
static bool tap_open(struct tap *tap, const char *name) {
        struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
        unsigned long offload = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;

        tap->end = &tap->first;
        snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
        tap->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (tap->fd >= 0 && ioctl(tap->fd, TUNSETIFF, &request) == 0 && ioctl(tap->fd, TUNSETOFFLOAD, offload) == 0)
                return true;
        fprintf(stderr, "switch: tap %s: %s\n", name, strerror(errno));
        return false;
}

static void tap_add(struct tap *tap, const uint8_t *data, uint32_t bytes, uint64_t due_ns) {
        struct frame *frame = malloc(sizeof(*frame) + bytes);

        if (!frame)
                return; /* lost, as by a switch that is full */
        *frame = (struct frame){.due_ns = due_ns, .bytes = bytes};
        memcpy(frame->data, data, bytes);
        *tap->end = frame;
        tap->end = &frame->next;
}

static void tap_take(struct tap *tap) {
        uint8_t data[FRAME_MAX];

        for (uint32_t i = 0; i < ROUND; i++) {
                ssize_t n = read(tap->fd, data, sizeof(data));
                const uint8_t *to = data + HEAD, *from = to + ADDRESS;
                uint64_t due_ns = clock_now_ns() + delay_ns;

                if (n < (ssize_t)(HEAD + 2 * ADDRESS))
                        return;
                memcpy(tap->address, from, ADDRESS);
                for (uint32_t k = 0; k < n_taps; k++)
                        if (&taps[k] != tap && ((to[0] & 1) || memcmp(taps[k].address, to, ADDRESS) == 0))
                                tap_add(&taps[k], data, (uint32_t)n, due_ns);
        }
}

/* What is due. Returns when the next one is, or `earliest` if that is sooner. */
static uint64_t tap_give(struct tap *tap, uint64_t now_ns, uint64_t earliest_ns) {
        while (tap->first && tap->first->due_ns <= now_ns) {
                struct frame *frame = tap->first;

                (void)!write(tap->fd, frame->data, frame->bytes); /* fails while the other end is down */
                tap->first = frame->next;
                if (!tap->first)
                        tap->end = &tap->first;
                free(frame);
        }
        return tap->first && tap->first->due_ns < earliest_ns ? tap->first->due_ns : earliest_ns;
}

/* False: that was the last order. */
static bool take_order(void) {
        char line[64];
        ssize_t n = read(STDIN_FILENO, line, sizeof(line) - 1);

        if (n <= 0)
                return false;
        line[n] = '\0';
        delay_ns = strtoull(line, NULL, 10) * 1000u;
        printf("%llu\n", (unsigned long long)(delay_ns / 1000u));
        return true;
}

int main(int argc, char **argv) {
        struct pollfd fds[TAPS_MAX + 1] = {{.fd = STDIN_FILENO, .events = POLLIN}};

        if (argc < 3 || argc > (int)TAPS_MAX + 1) {
                fprintf(stderr, "Usage: switch TAP TAP...; at most %u\n", TAPS_MAX);
                return 2;
        }
        (void)prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
        setvbuf(stdout, NULL, _IOLBF, 0);
        for (; n_taps + 1 < (uint32_t)argc; n_taps++) {
                if (!tap_open(&taps[n_taps], argv[n_taps + 1]))
                        return 1;
                fds[n_taps + 1] = (struct pollfd){.fd = taps[n_taps].fd, .events = POLLIN};
        }
        puts("ready");
        for (;;) {
                uint64_t now_ns = clock_now_ns(), next_ns = UINT64_MAX;
                struct timespec wait;

                for (uint32_t i = 0; i < n_taps; i++)
                        next_ns = tap_give(&taps[i], now_ns, next_ns);
                wait.tv_sec = (time_t)((next_ns - now_ns) / 1000000000u);
                wait.tv_nsec = (long)((next_ns - now_ns) % 1000000000u);
                (void)ppoll(fds, n_taps + 1, next_ns == UINT64_MAX ? NULL : &wait, NULL);
                if (fds[0].revents && !take_order())
                        return 0;
                for (uint32_t i = 0; i < n_taps; i++)
                        tap_take(&taps[i]);
        }
}
