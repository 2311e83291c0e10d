/* SPDX-License-Identifier: MIT */
#include "tests/fabric/rig.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/time_scale.h"
#include "util/clock.h"

#define POISON 0xEE

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
/*
 * A slot is written again because its chunk went over a socket and its credit came back over another: an order that
 * ThreadSanitizer does not see (and it notes what sendmsg() has read when that returns, which may be later). What is
 * read of a slot in order to send it is all that is left out; tests compare every byte that arrives.
 */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) {
        return "race:send_plain\nrace:send_tls\nrace:frame_finish\n";
}
#endif
#endif

const struct verbs_api *rig_verbs;
const char *const rig_rail_names[RIG_RAILS] = {"blue", "red"};

struct rig_place rig_place(enum rig_where where, uint32_t node, uint32_t rail) {
        struct rig_place place = {.address = "127.0.0.1"};

        switch (where) {
        case RIG_LOOPBACK:
                snprintf(place.address, sizeof(place.address), "127.0.0.%u", rail + 1);
                break;
        case RIG_FAKE:
                snprintf(place.address, sizeof(place.address), "127.0.%u.%u", rail + 1, node + 1);
                snprintf(place.hca, sizeof(place.hca), "fake_%c%u", 'a' + (int)node, rail);
                break;
        case RIG_SOFT:
                snprintf(place.address, sizeof(place.address), "10.77.%u.%u", rail, node + 1);
                snprintf(place.device, sizeof(place.device), "%c%u", 'a' + (int)node, rail);
                break; /* its adapter is found by its address */
        }
        return place;
}

uint64_t rig_random(uint64_t *state) {
        uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        return z ^ z >> 31;
}

/* What chunk number n of a channel is made of. */
static uint64_t chunk_seed(const struct rig_channel *channel, uint32_t number) {
        uint64_t state = (uint64_t)channel->source << 40 | (uint64_t)channel->destination << 32 | number;

        return rig_random(&state);
}

static uint32_t chunk_bytes(const struct rig *rig, const struct rig_channel *channel, uint32_t number) {
        uint64_t state = chunk_seed(channel, number) + 1;
        uint32_t least = rig->options.least_data;

        if (number % 7 == 3 && !least)
                return 0;
        return least + (uint32_t)(rig_random(&state) % (rig->options.slot_bytes - least + 1));
}

static void chunk_fill(uint8_t *bytes, uint32_t size, uint64_t seed) {
        uint32_t i = 0;

        for (; i + 8 <= size; i += 8) {
                uint64_t word = seed ^ (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);

                memcpy(bytes + i, &word, 8);
        }
        for (; i < size; i++)
                bytes[i] = (uint8_t)(seed >> i % 8 * 8 ^ i);
}

static void chunk_compare(const uint8_t *bytes, uint32_t size, uint64_t seed, const char *what, uint32_t number) {
        static __thread uint8_t expected[1 << 20];

        chunk_fill(expected, size, seed);
        if (memcmp(bytes, expected, size) != 0) {
                uint32_t i = 0;

                while (bytes[i] == expected[i])
                        i++;
                fail_msg("chunk %u: wrong %s at byte %u of %u: %02x, not %02x", number, what, i, size, bytes[i],
                         expected[i]);
        }
}

static uint64_t slot_offset(const struct rig *rig, const struct rig_channel *channel, uint32_t number) {
        uint64_t slot = NET_LINE + ((uint64_t)rig->options.slot_bytes + NET_LINE - 1) / NET_LINE * NET_LINE;

        return channel->offset + NET_LINE + number % RIG_SLOTS * slot;
}

static _Atomic uint32_t *word_at(struct rig_node *node, uint64_t offset) {
        return (_Atomic uint32_t *)(void *)((uint8_t *)node->area + offset);
}

static void post(struct rig_node *node, const struct net_descriptor *d) {
        const uint64_t one = 1;

        net_area_post(node->area, d);
        if (net_area_wake_fabric(node->area))
                assert_int_equal(write(fabric_doorbell_fd(node->fabric), &one, sizeof(one)), sizeof(one));
}

static bool channel_push(struct rig *rig, struct rig_channel *channel) {
        struct rig_node *node = &rig->nodes[rig->node_of[channel->source]];
        uint32_t number = channel->pushed, bytes;
        struct net_descriptor d = {.kind = NET_CHUNK};
        uint8_t *line;

        if (channel->stopped || number >= rig->options.chunks ||
            /* Acquire; partner: the fabric's release in net_area_arrive. */
            number - atomic_load_explicit(word_at(node, channel->offset), memory_order_acquire) >= RIG_SLOTS)
                return false;
        bytes = chunk_bytes(rig, channel, number);
        d.source = (uint8_t)channel->source;
        d.destination = (uint8_t)channel->destination;
        d.value = number + 1;
        d.line_offset = slot_offset(rig, channel, number);
        d.data_offset = d.line_offset + NET_LINE;
        d.data_bytes = bytes;
        line = (uint8_t *)node->area + d.line_offset;
        chunk_fill(line + 4, NET_LINE - 4, chunk_seed(channel, number));
        chunk_fill(line + NET_LINE, bytes, chunk_seed(channel, number));
        post(node, &d);
        channel->pushed++;
        return true;
}

static bool channel_receive(struct rig *rig, struct rig_channel *channel) {
        struct rig_node *node = &rig->nodes[rig->node_of[channel->destination]];
        uint32_t number = channel->received, bytes, flag;
        uint64_t offset = slot_offset(rig, channel, number);
        struct net_descriptor d = {.kind = NET_CREDIT};
        uint8_t *line = (uint8_t *)node->area + offset;

        if (channel->stopped)
                return false;
        /* Acquire; partner: the fabric's release in net_area_arrive. */
        flag = atomic_load_explicit(word_at(node, offset), memory_order_acquire);
        if (flag != number + 1) {
                if (number >= RIG_SLOTS)
                        assert_int_equal(flag, number + 1 - RIG_SLOTS); /* an old one came back */
                else
                        assert_int_equal(flag, 0);
                return false;
        }
        bytes = chunk_bytes(rig, channel, number);
        chunk_compare(line + 4, NET_LINE - 4, chunk_seed(channel, number), "line", number);
        chunk_compare(line + NET_LINE, bytes, chunk_seed(channel, number), "data", number);
        memset(line + 4, POISON, NET_LINE - 4);
        memset(line + NET_LINE, POISON, rig->options.slot_bytes);
        channel->received++;
        channel->received_bytes += bytes;
        d.source = (uint8_t)channel->destination;
        d.destination = (uint8_t)channel->source;
        d.value = channel->received;
        d.line_offset = channel->offset;
        post(node, &d);
        return true;
}

bool rig_step(struct rig *rig) {
        bool any = false;

        for (uint32_t i = 0; i < rig->n_channels; i++) {
                any |= channel_push(rig, &rig->channels[i]);
                any |= channel_receive(rig, &rig->channels[i]);
        }
        return any;
}

bool rig_done(const struct rig *rig) {
        for (uint32_t i = 0; i < rig->n_channels; i++)
                if (rig->channels[i].received < rig->options.chunks)
                        return false;
        return true;
}

/* When a test hangs. */
static void rig_describe(struct rig *rig) {
        rig_dispatch(rig);
        for (uint32_t i = 0; i < rig->n_channels; i++)
                print_message("channel %u to %u: pushed %u, released %u, received %u\n", rig->channels[i].source,
                              rig->channels[i].destination, rig->channels[i].pushed,
                              atomic_load(word_at(&rig->nodes[rig->node_of[rig->channels[i].source]],
                                                  rig->channels[i].offset)),
                              rig->channels[i].received);
        for (uint32_t i = 0; i < rig->options.n_nodes; i++) {
                struct fabric_route_row *rows;
                size_t n;

                assert_int_equal(fabric_routes(rig->nodes[i].fabric, &rows, &n), 0);
                for (size_t r = 0; r < n; r++)
                        print_message("node %u: rail %s to %u, %s: %s%s, %llu made, %llu errors, %llu queued, "
                                      "%llu in flight\n",
                                      i, rows[r].rail, rows[r].peer.id[0] - 1u, fabric_class_name(rows[r].class),
                                      fabric_route_state_name(rows[r].state), rows[r].connected ? ", connected" : "",
                                      (unsigned long long)rows[r].connections, (unsigned long long)rows[r].errors,
                                      (unsigned long long)rows[r].queued_bytes,
                                      (unsigned long long)rows[r].flight_bytes);
                free(rows);
                print_message("node %u: last told: %s\n", i, rig->nodes[i].text);
        }
}

void rig_wait(struct rig *rig, unsigned int seconds) {
        struct pollfd fds[RIG_NODES];
        uint32_t seen[RIG_NODES];
        bool news = false;
        int r = 1;

        seconds *= (unsigned int)time_scale();
        for (uint32_t i = 0; i < rig->options.n_nodes; i++) {
                seen[i] = atomic_load_explicit(&rig->nodes[i].area->arrivals, memory_order_acquire);
                fds[i] = (struct pollfd){.fd = rig->nodes[i].wake_fd, .events = POLLIN};
        }
        if (rig_step(rig))
                return;
        for (uint32_t i = 0; i < rig->options.n_nodes; i++)
                atomic_store_explicit(&rig->nodes[i].area->executor_asleep, 1, memory_order_relaxed);
        /* partner: net_area_wake_executor */
        atomic_thread_fence(memory_order_seq_cst);
        for (uint32_t i = 0; i < rig->options.n_nodes; i++)
                news |= atomic_load_explicit(&rig->nodes[i].area->arrivals, memory_order_acquire) != seen[i];
        if (!news) {
                rig->sleeps++;
                r = poll(fds, rig->options.n_nodes, (int)seconds * 1000);
        }
        for (uint32_t i = 0; i < rig->options.n_nodes; i++) {
                uint64_t count;

                atomic_store_explicit(&rig->nodes[i].area->executor_asleep, 0, memory_order_relaxed);
                if (!news && fds[i].revents & POLLIN)
                        assert_int_equal(read(rig->nodes[i].wake_fd, &count, sizeof(count)), sizeof(count));
        }
        if (r == 0)
                rig_describe(rig);
        if (r == 0)
                fail_msg("nothing arrived for %u s; channel 0: pushed %u, received %u", seconds,
                         rig->channels[0].pushed, rig->channels[0].received);
}

void rig_check_quiet(struct rig *rig) {
        for (uint32_t i = 0; i < rig->n_channels; i++) {
                struct rig_channel *channel = &rig->channels[i];
                struct rig_node *node = &rig->nodes[rig->node_of[channel->destination]];

                for (uint32_t s = 0; s < RIG_SLOTS && channel->received >= RIG_SLOTS; s++) {
                        uint32_t number = channel->received - RIG_SLOTS + s;
                        uint64_t offset = slot_offset(rig, channel, number);
                        const uint8_t *line = (const uint8_t *)node->area + offset;

                        assert_int_equal(atomic_load(word_at(node, offset)), number + 1);
                        for (uint32_t b = 4; b < NET_LINE + rig->options.slot_bytes; b++)
                                if (line[b] != POISON)
                                        fail_msg("something was written late to byte %u of a slot", b);
                }
        }
}

void rig_settle(struct rig *rig, unsigned int seconds) {
        uint64_t end_ns = clock_now_ns() + seconds * time_scale() * 1000000000u, left;

        do {
                left = 0;
                for (uint32_t node = 0; node < rig->options.n_nodes; node++) {
                        struct fabric_counters counters;

                        fabric_counters(rig->nodes[node].fabric, &counters);
                        left += counters.graves;
                }
                if (left > 0 && clock_now_ns() > end_ns)
                        fail_msg("%llu graves are left", (unsigned long long)left);
                rig_dispatch(rig);
                sched_yield();
        } while (left > 0);
}

void rig_run(struct rig *rig, unsigned int seconds) {
        uint64_t end_ns = clock_now_ns() + seconds * time_scale() * 1000000000u;

        while (!rig_done(rig)) {
                if (!rig_step(rig))
                        rig_wait(rig, seconds);
                rig_dispatch(rig);
                assert_true(clock_now_ns() < end_ns);
        }
        rig_check_quiet(rig);
}

static void rig_on_route(void *data, const struct fabric_node *peer, const char *rail, enum fabric_route_state state,
                         const char *why) {
        struct rig_node *node = data;

        (void)peer;
        node->routes_changed++;
        node->hung += strcmp(why, "its adapter does not answer") == 0;
        snprintf(node->why, sizeof(node->why), "%s", why);
        if (getenv("RIG_VERBOSE"))
                fprintf(stderr, "node %u: route %s is %s: %s\n", node->id.id[0], rail, fabric_route_state_name(state),
                        why);
}

static void rig_on_unreachable(void *data, const struct fabric_node *peer, const char *why) {
        struct rig_node *node = data;

        (void)peer;
        node->unreachable++;
        snprintf(node->unreached, sizeof(node->unreached), "%s", why);
}

static void rig_on_lost(void *data, const struct fabric_node *peer, const char *why) {
        struct rig_node *node = data;

        (void)peer;
        (void)why;
        node->lost++;
}

static void rig_on_cut_off(void *data, const struct fabric_node *peer, uint64_t key, const char *why) {
        struct rig_node *node = data;

        (void)peer;
        (void)key;
        (void)why;
        node->cut_off++;
}

static void rig_on_violation(void *data, const struct fabric_node *peer, uint64_t key, const char *text) {
        struct rig_node *node = data;

        (void)peer;
        (void)key;
        node->violations++;
        snprintf(node->text, sizeof(node->text), "%s", text);
}

static void rig_on_area(void *data, uint64_t key, int condition, const char *text) {
        struct rig_node *node = data;

        (void)key;
        node->areas++;
        if (!condition)
                return;
        node->refused_areas++;
        snprintf(node->text, sizeof(node->text), "%s", text);
}

void rig_dispatch(struct rig *rig) {
        for (uint32_t i = 0; i < rig->options.n_nodes; i++)
                fabric_dispatch(rig->nodes[i].fabric);
}

static void rig_layout(struct rig *rig) {
        uint64_t slot = NET_LINE + ((uint64_t)rig->options.slot_bytes + NET_LINE - 1) / NET_LINE * NET_LINE, bytes = 0;
        uint32_t capacity = 1, rank = 0;

        for (uint32_t node = 0; node < rig->options.n_nodes; node++) {
                for (uint32_t i = 0; i < rig->options.ranks[node]; i++) {
                        rig->node_of[rank] = node;
                        rig->rank_nodes[rank++] = rig->nodes[node].id;
                }
        }
        rig->n_ranks = rank;
        while (capacity < 2 * RIG_SLOTS * rank * rank)
                capacity *= 2;
        for (uint32_t s = 0; s < rank; s++) {
                for (uint32_t d = 0; d < rank; d++) {
                        if (rig->node_of[s] == rig->node_of[d])
                                continue;
                        rig->channels[rig->n_channels++] =
                                (struct rig_channel){.source = s, .destination = d, .offset = bytes};
                        bytes += NET_LINE + RIG_SLOTS * slot;
                }
        }
        for (uint32_t node = 0; node < rig->options.n_nodes; node++) {
                struct rig_node *n = &rig->nodes[node];

                n->size = net_area_bytes(capacity, bytes);
                n->area = mmap(NULL, n->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
                assert_ptr_not_equal(n->area, MAP_FAILED);
                net_area_init(n->area, capacity, bytes);
                n->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
                assert_true(n->wake_fd >= 0);
        }
        for (uint32_t i = 0; i < rig->n_channels; i++)
                rig->channels[i].offset += rig->nodes[0].area->memory_offset;
}

void rig_fabric(struct rig *rig, uint32_t i) {
        const struct rig_options *options = &rig->options;
        struct rig_node *node = &rig->nodes[i];
        struct fabric_options fabric_options = {.self = node->id,
                                                .boot_epoch = node->epoch,
                                                .cluster = "test",
                                                .tls = options->tls,
                                                .verbs = rig_verbs,
                                                .allow_plain = options->where == RIG_SOFT,
                                                .times = options->times,
                                                .callbacks = {.route = rig_on_route,
                                                              .unreachable = rig_on_unreachable,
                                                              .lost = rig_on_lost,
                                                              .cut_off = rig_on_cut_off,
                                                              .violation = rig_on_violation,
                                                              .area = rig_on_area},
                                                .data = node};

        assert_int_equal(fabric_new(&fabric_options, &node->fabric), 0);
        for (uint32_t rail = 0; rail < options->n_rails; rail++) {
                struct rig_place place = rig_place(options->where, i, rail);
                struct fabric_rail_options rail_options = {.name = rig_rail_names[rail],
                                                           .kind = options->kind ? options->kind : "tcp",
                                                           .address = place.address,
                                                           .device = place.device[0] ? place.device : NULL,
                                                           .hca = place.hca[0] ? place.hca : NULL,
                                                           .rate_bytes = options->rate_bytes,
                                                           .window_bytes = options->window_bytes,
                                                           .number = (uint8_t)rail,
                                                           .udp_port = options->udp_port};

                memcpy(rail_options.dscp, options->dscp, sizeof(rail_options.dscp));
                if (fabric_rail_add(node->fabric, &rail_options) != 0)
                        fail_msg("%s", fabric_error(node->fabric));
        }
}

static void rig_take(struct rig *rig, const struct rig_options *options) {
        memset(rig, 0, sizeof(*rig));
        rig->options = *options;
#if RIG_OVER_FAKES
        if (!options->kind) {
                rig->options.kind = "verbs";
                rig->options.where = RIG_FAKE;
        }
#endif
}

void rig_start(struct rig *rig, const struct rig_options *options) {
        rig_take(rig, options);
        for (uint32_t i = 0; i < options->n_nodes; i++) {
                memset(rig->nodes[i].id.id, (int)i + 1, sizeof(rig->nodes[i].id.id));
                rig->nodes[i].epoch = 1000 + i;
                rig_fabric(rig, i);
        }
        rig_layout(rig);
}

uint16_t rig_port(struct rig *rig, uint32_t node, uint32_t rail) {
        struct fabric_rail_row *rows;
        uint16_t port;
        size_t n;

        assert_int_equal(fabric_rails(rig->nodes[node].fabric, &rows, &n), 0);
        assert_true(rail < n);
        port = rows[rail].port;
        free(rows);
        return port;
}

void rig_peer(struct rig *rig, uint32_t a, uint32_t b, const uint16_t *ports) {
        struct fabric_peer_rail rails[RIG_MORE + RIG_RAILS];
        struct rig_place places[RIG_RAILS];
        struct fabric_peer_options options = {.node = rig->nodes[b].id,
                                              .boot_epoch = rig->nodes[b].epoch,
                                              .rails = rails,
                                              .n_rails = rig->options.n_more + rig->options.n_rails};

        assert_true(rig->options.n_more <= RIG_MORE);
        for (size_t i = 0; i < rig->options.n_more; i++)
                rails[i] = rig->options.more[i];
        memset(options.token, (int)(a < b ? a * 16 + b : b * 16 + a), sizeof(options.token));
        for (uint32_t rail = 0; rail < rig->options.n_rails; rail++) {
                places[rail] = rig_place(rig->options.where, b, rail);
                rails[rig->options.n_more + rail] =
                        (struct fabric_peer_rail){.name = rig_rail_names[rail],
                                                  .address = places[rail].address,
                                                  .port = ports ? ports[rail] : rig_port(rig, b, rail)};
        }
        if (fabric_peer_add(rig->nodes[a].fabric, &options) != 0)
                fail_msg("%s", fabric_error(rig->nodes[a].fabric));
}

void rig_area(struct rig *rig, uint32_t node) {
        struct rig_node *n = &rig->nodes[node];
        struct fabric_area_options options = {.key = rig->options.key,
                                              .memory = n->area,
                                              .size = n->size,
                                              .wake_fd = n->wake_fd,
                                              .nodes = rig->rank_nodes,
                                              .n_ranks = rig->n_ranks,
                                              .class = rig->options.class,
                                              .tenant = rig->options.tenant,
                                              .weight = rig->options.weight ? rig->options.weight : 100,
                                              .stripe_bytes = rig->options.stripe_bytes,
                                              .rails = rig->options.rails,
                                              .only = rig->options.only};

        if (fabric_area_add(n->fabric, &options) != 0)
                fail_msg("%s", fabric_error(n->fabric));
}

void rig_new(struct rig *rig, const struct rig_options *options) {
        rig_start(rig, options);
        for (uint32_t a = 0; a < options->n_nodes; a++)
                for (uint32_t b = 0; b < options->n_nodes; b++)
                        if (a != b)
                                rig_peer(rig, a, b, NULL);
        for (uint32_t a = 0; a < options->n_nodes; a++)
                rig_area(rig, a);
        for (uint32_t a = 0; a < options->n_nodes; a++)
                while (rig->nodes[a].areas == 0)
                        fabric_dispatch(rig->nodes[a].fabric);
}

void rig_join(struct rig *rig, const struct rig_options *options, struct rig *host) {
        rig_take(rig, options);
        for (uint32_t i = 0; i < options->n_nodes; i++) {
                rig->nodes[i].fabric = host->nodes[i].fabric;
                rig->nodes[i].id = host->nodes[i].id;
                rig->nodes[i].epoch = host->nodes[i].epoch;
        }
        rig_layout(rig);
        for (uint32_t i = 0; i < options->n_nodes; i++)
                rig_area(rig, i);
}

static void rig_forget(struct rig *rig, struct rig_channel *channel) {
        uint64_t bytes =
                slot_offset(rig, channel, RIG_SLOTS - 1) + NET_LINE + rig->options.slot_bytes - channel->offset;

        channel->pushed = channel->received = 0;
        channel->stopped = false;
        for (uint32_t i = 0; i < rig->options.n_nodes; i++)
                memset((uint8_t *)rig->nodes[i].area + channel->offset, 0, bytes);
}

void rig_restart_node(struct rig *rig, uint32_t node) {
        struct rig_node *n = &rig->nodes[node];

        /* A communicator of the new life would have a new key; here all have removed and add the area again. */
        for (uint32_t i = 0; i < rig->options.n_nodes; i++)
                if (i != node)
                        assert_int_equal(fabric_area_remove(rig->nodes[i].fabric, rig->options.key), 0);
        rig->options.key++;
        n->epoch += 100;
        fabric_free(n->fabric);
        rig_fabric(rig, node);
        for (uint32_t i = 0; i < rig->n_channels; i++)
                rig_forget(rig, &rig->channels[i]);
        for (uint32_t i = 0; i < rig->options.n_nodes; i++) {
                uint32_t capacity = rig->nodes[i].area->capacity;
                uint64_t bytes = rig->nodes[i].area->memory_bytes;

                memset(rig->nodes[i].area, 0, rig->nodes[i].area->memory_offset);
                net_area_init(rig->nodes[i].area, capacity, bytes);
                if (i != node) {
                        rig_peer(rig, i, node, NULL);
                        rig_peer(rig, node, i, NULL);
                }
        }
        for (uint32_t i = 0; i < rig->options.n_nodes; i++)
                rig_area(rig, i);
}

void rig_free(struct rig *rig) {
        for (uint32_t i = 0; i < rig->options.n_nodes; i++)
                rig->nodes[i].fabric = fabric_free(rig->nodes[i].fabric);
        for (uint32_t i = 0; i < rig->options.n_nodes; i++) {
                munmap(rig->nodes[i].area, rig->nodes[i].size);
                close(rig->nodes[i].wake_fd);
        }
}
