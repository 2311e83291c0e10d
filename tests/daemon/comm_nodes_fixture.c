/* SPDX-License-Identifier: MIT */
#include "tests/daemon/comm_nodes_fixture.h"

#include "plan/cost.h"
#include "plan/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t both_gpus;
bool both_managed;
const char *both_rails;
const char *both_more;
bool both_widenings;
uint32_t both_algorithms;
const char *both_tenant = "default";

/* ---- the neighbour ----------------------------------------------------------------------------------------------- */
static void on_up(struct peer *peer, void *data) {
        struct neighbour *n = data;

        n->peer = peer;
        n->up = true;
}

static void on_lost(struct peer *peer, const char *text, void *data) {
        struct neighbour *n = data;

        (void)peer;
        (void)text;
        n->lost = true;
}

static void on_message(struct peer *peer, const Railmux__Peer__Message *message, void *data) {
        size_t size = railmux__peer__message__get_packed_size(message);
        struct neighbour *n = data;
        uint8_t *copy = malloc(size);

        (void)peer;
        assert_non_null(copy);
        assert_true(n->n_heard < HEARD);
        railmux__peer__message__pack(message, copy);
        n->heard[n->n_heard] = railmux__peer__message__unpack(NULL, size, copy);
        assert_non_null(n->heard[n->n_heard++]);
        free(copy);
}

static void turn(struct both *b) {
        fixture_turn(&b->f);
        assert_true(event_base_loop(b->n.base, EVLOOP_NONBLOCK) >= 0);
}

void say_of(struct neighbour *n, Railmux__Peer__Message *message) {
        assert_int_equal(peer_send(n->peer, message), 0);
}

void say(struct both *b, Railmux__Peer__Message *message) {
        say_of(&b->n, message);
}

bool has_heard(const struct neighbour *n, unsigned int what) {
        for (unsigned int i = n->n_taken; i < n->n_heard; i++)
                if (n->heard[i]->body_case == what)
                        return true;
        return false;
}

/* The next one of the kind; what came before it is passed over. */
const Railmux__Peer__Message *take_of(struct both *b, struct neighbour *n, unsigned int what) {
        both_wait(b, has_heard(n, what));
        while (n->heard[n->n_taken]->body_case != what)
                n->n_taken++;
        return n->heard[n->n_taken++];
}

const Railmux__Peer__Message *take(struct both *b, unsigned int what) {
        return take_of(b, &b->n, what);
}

/* All that was said before has been heard: answers come in order, and ids are told in any state. */
void settle_of(struct both *b, struct neighbour *n) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__IdAsk ask = RAILMUX__PEER__ID_ASK__INIT;
        static uint64_t number;
        bool told = false;

        ask.key = KEY;
        ask.number = ++number;
        ask.tenant = "nobody";
        message.body_case = SAYS(ID_ASK);
        message.id_ask = &ask;
        say_of(n, &message);
        while (!told) {
                both_wait(b, has_heard(n, SAYS(ID_TOLD)));
                for (unsigned int i = 0; i < n->n_heard; i++)
                        told = told ||
                               (n->heard[i]->body_case == SAYS(ID_TOLD) && n->heard[i]->id_told->number == number);
                turn(b);
        }
}

void settle(struct both *b) {
        settle_of(b, &b->n);
}

static void say_rails(struct neighbour *n) {
        Railmux__Peer__Rail rail = RAILMUX__PEER__RAIL__INIT, *rails[] = {&rail};
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Rails body = RAILMUX__PEER__RAILS__INIT;

        rail.name = "tcp0";
        rail.address = "127.0.0.1";
        rail.port = 9; /* nothing is carried in these tests */
        body.rails = rails;
        body.n_rails = 1;
        message.body_case = SAYS(RAILS);
        message.rails = &body;
        say_of(n, &message);
}

static void neighbour_begin(struct both *b, struct neighbour *n, uint8_t node, uint64_t boot) {
        struct peers_options options = {.cluster = "test",
                                        .listen = "127.0.0.1:0",
                                        .boot = boot,
                                        .heartbeat_ms = 1000,
                                        .deadline_ms = 30000,
                                        .events = {.up = on_up, .message = on_message, .lost = on_lost},
                                        .data = n};
        char error[PEER_TEXT_MAX], address[COMM_ID_ADDRESS_BYTES];
        uint8_t id[COMM_ID_BYTES];

        *n = (struct neighbour){.base = b->n.base};
        options.base = n->base;
        memset(options.node, node, sizeof(options.node));
        assert_int_equal(peers_new(&options, error, &n->peers), 0);
        call_id_create(b->clients[0], id);
        assert_int_equal(comm_id_address(id, address), 0);
        assert_int_equal(peers_dial(n->peers, address, &n->peer), 0);
        both_wait(b, n->up);
        say_rails(n);
        (void)take_of(b, n, SAYS(RAILS));
}

void neighbour_start(struct both *b, uint8_t node, uint64_t boot) {
        b->n.base = event_base_new();
        assert_non_null(b->n.base);
        neighbour_begin(b, &b->n, node, boot);
}

static void neighbour_end(struct neighbour *n) {
        n->peers = peers_free(n->peers);
        while (n->n_heard)
                railmux__peer__message__free_unpacked(n->heard[--n->n_heard], NULL);
        n->n_taken = 0;
}

void third_start(struct both *b, uint8_t node, uint64_t boot) {
        neighbour_begin(b, &b->third, node, boot);
}

void third_stop(struct both *b) {
        neighbour_end(&b->third);
}

void neighbour_stop(struct both *b) {
        neighbour_end(&b->third);
        neighbour_end(&b->n);
        if (b->n.base)
                event_base_free(b->n.base);
        b->n.base = NULL;
}

/* ---- a communicator over both ------------------------------------------------------------------------------------ */
void begin(struct both *b, uint8_t node, uint64_t boot) {
        static char config[512], planes_config[640];

        snprintf(config, sizeof(config), "%s  rails: '%s'\n%s", BOTH_CONFIG, both_rails ? both_rails : "",
                 both_more ? both_more : "");
        snprintf(planes_config, sizeof(planes_config), "%sgpu: {reach: 512K, exchange: 64K}\n", config);
        fixture_planes_config = planes_config;
        if (both_gpus)
                fixture_setup_planes(&b->f, both_gpus, both_managed);
        else
                fixture_setup(&b->f, config, both_managed);
        b->f.tenant = both_tenant;
        for (uint32_t i = 0; i < 2; i++)
                b->clients[i] = client_open(&b->f);
        b->third = (struct neighbour){0};
        call_id_create(b->clients[0], b->id);
        neighbour_start(b, node, boot);
}

static void take_handles(struct both *b, const uint64_t calls[2]) {
        for (uint32_t i = 0; i < 2; i++) {
                struct comm_answer answer;

                both_wait(b, client_find(b->clients[i], calls[i]));
                answer = take_comm(b->clients[i], calls[i]);
                assert_int_equal(answer.code, 0);
                assert_int_equal(answer.rank, b->first + i);
                assert_string_equal(answer.nodes, b->third.up ? "0122" : "0011");
                b->handles[i] = answer.handle;
        }
}

void say_ready(struct both *b, uint64_t key) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Ready body = RAILMUX__PEER__READY__INIT;

        body.key = key;
        message.body_case = SAYS(READY);
        message.ready = &body;
        say(b, &message);
}

/* Of its own: one of a number that there is here as well, or is not. */
static uint32_t neighbour_gpu(uint32_t rank) {
        return both_gpus > 0 && rank % 2 == 0 ? 5 : 0;
}

void say_join(struct both *b, uint32_t rank, uint64_t attempt) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Join join = RAILMUX__PEER__JOIN__INIT;

        join.comm_id.data = b->id;
        join.comm_id.len = COMM_ID_BYTES;
        join.tenant = (char *)both_tenant;
        join.rank = rank;
        join.n_ranks = RANKS;
        join.attempt = attempt;
        join.device = both_gpus > 0;
        join.widenings = both_widenings;
        join.algorithms = both_algorithms;
        join.gpu = neighbour_gpu(rank);
        message.body_case = SAYS(JOIN);
        message.join = &join;
        say(b, &message);
}

/* railmuxd has the ranks 0 and 1, and made the id. */
void setup_first(struct both *b) {
        uint64_t calls[2];

        begin(b, 0xee, 1);
        b->first = 0;
        for (uint32_t i = 0; i < 2; i++)
                calls[i] = send_comm_create(b->clients[i], b->id, RANKS, i);
        settle(b);
        for (uint32_t r = 2; r < RANKS; r++)
                say_join(b, r, 7);
        b->key = take(b, SAYS(ASSIGN))->assign->key;
        say_ready(b, b->key);
        (void)take(b, SAYS(GO));
        take_handles(b, calls);
}

/* Of the neighbour's ranks the second one is the third node's, if there is one, and railmuxd is the last node. */
static void say_assign(struct both *b, uint64_t attempt) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Assign body = RAILMUX__PEER__ASSIGN__INIT;
        Railmux__Peer__Member members[RANKS], *member_list[RANKS];
        Railmux__Peer__Node nodes[3], *node_list[3] = {&nodes[0], &nodes[1], &nodes[2]};
        uint32_t last = b->third.up ? 2 : 1;
        Railmux__Peer__Choice choice = RAILMUX__PEER__CHOICE__INIT, wide, late, large, *choices[4] = {&choice};
        struct plan_geometry geometry;

        plan_geometry_choose(RANKS, &geometry);
        for (uint32_t r = 0; r < RANKS; r++) {
                railmux__peer__member__init(&members[r]);
                members[r].rank = r;
                members[r].node = r < b->first ? r * (last - 1) : last;
                members[r].gpu = neighbour_gpu(r);
                member_list[r] = &members[r];
        }
        for (uint32_t i = 0; i <= last; i++) {
                const struct neighbour *n = i ? &b->third : &b->n;

                railmux__peer__node__init(&nodes[i]);
                nodes[i].node.len = PEER_NODE_BYTES;
                nodes[i].node.data = (uint8_t *)(i == last ? peer_node_id(b->n.peer) : peers_node(n->peers));
                nodes[i].address = (char *)(i == last ? peer_address(b->n.peer) : peers_address(n->peers));
        }
        choice.operation = 1;
        choice.max_bytes = UINT64_MAX;
        wide = choice;
        wide.operation = 2;
        wide.widening = 4;
        late = choice;
        late.operation = 3;
        late.algorithm = both_algorithms - 1;
        late.max_bytes = 4096;
        large = choice;
        large.operation = 3;
        body.key = b->key = KEY;
        body.comm_id.data = b->id;
        body.comm_id.len = COMM_ID_BYTES;
        body.name = "";
        body.tenant = (char *)both_tenant;
        body.n_ranks = RANKS;
        body.n_members = RANKS;
        body.members = member_list;
        body.n_nodes = last + 1;
        body.nodes = node_list;
        body.n_choices = 1;
        if (both_widenings)
                choices[body.n_choices++] = &wide;
        if (both_algorithms) {
                choices[body.n_choices++] = &late;
                choices[body.n_choices++] = &large;
        }
        body.choices = choices;
        body.part_bytes = geometry.part_bytes;
        body.slots = geometry.slots;
        body.attempt = attempt;
        message.body_case = SAYS(ASSIGN);
        message.assign = &body;
        say(b, &message);
}

static void follow(struct both *b) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Go go = RAILMUX__PEER__GO__INIT;
        uint64_t calls[2], attempt;

        b->first = 2;
        memset(b->id, 0, sizeof(b->id));
        b->id[0] = COMM_ID_VERSION;
        memcpy(b->id + 8, peers_node(b->n.peers), PEER_NODE_BYTES);
        snprintf((char *)b->id + 56, COMM_ID_ADDRESS_BYTES, "%s", peers_address(b->n.peers));
        for (uint32_t i = 0; i < 2; i++)
                calls[i] = send_comm_create(b->clients[i], b->id, RANKS, 2 + i);
        attempt = take(b, SAYS(JOIN))->join->attempt;
        (void)take(b, SAYS(JOIN));
        say_assign(b, attempt);
        (void)take(b, SAYS(READY));
        go.key = b->key;
        message.body_case = SAYS(GO);
        message.go = &go;
        say(b, &message);
        take_handles(b, calls);
}

/* railmuxd has the ranks 2 and 3, and the neighbour made the id, and is the first node. */
void setup_follower(struct both *b) {
        begin(b, 0x11, 1);
        follow(b);
}

/* The same, and rank 1 is on a third node. */
void setup_three(struct both *b) {
        begin(b, 0x11, 1);
        third_start(b, 0x22, 1);
        follow(b);
}

void finish(struct both *b) {
        neighbour_stop(b);
        for (uint32_t i = 0; i < 2; i++)
                client_close(b->clients[i]);
        fixture_wait(&b->f, b->f.executor.n_comms == 0);
        fixture_wait_idle(&b->f);
        fixture_teardown(&b->f);
}

void abandon(struct both *b) {
        neighbour_stop(b);
        fixture_teardown(&b->f);
}

/* ---- what is said of splits -------------------------------------------------------------------------------------- */
void split_join(struct both *b, const Railmux__Peer__SplitJoin *body) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;

        message.body_case = SAYS(SPLIT_JOIN);
        message.split_join = (Railmux__Peer__SplitJoin *)body;
        say(b, &message);
}

Railmux__Peer__SplitJoin wish(const struct both *b, uint32_t number, uint32_t rank, int32_t colour) {
        Railmux__Peer__SplitJoin body = RAILMUX__PEER__SPLIT_JOIN__INIT;

        body.key = b->key;
        body.number = number;
        body.rank = rank;
        body.colour = colour;
        body.gpu = -1;
        body.gpus = 2;
        body.widenings = both_widenings;
        body.algorithms = both_algorithms;
        return body;
}

void say_split_ready(struct both *b, uint32_t number) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitReady body = RAILMUX__PEER__SPLIT_READY__INIT;

        body.key = b->key;
        body.number = number;
        message.body_case = SAYS(SPLIT_READY);
        message.split_ready = &body;
        say(b, &message);
}

void say_split_go(struct both *b, uint32_t number) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitGo body = RAILMUX__PEER__SPLIT_GO__INIT;

        body.key = b->key;
        body.number = number;
        message.body_case = SAYS(SPLIT_GO);
        message.split_go = &body;
        say(b, &message);
}

void say_split_failed(struct both *b, uint32_t number, uint32_t code, const char *text, bool verdict) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitFailed body = RAILMUX__PEER__SPLIT_FAILED__INIT;

        body.key = b->key;
        body.number = number;
        body.code = code;
        body.text = (char *)text;
        body.verdict = verdict;
        message.body_case = SAYS(SPLIT_FAILED);
        message.split_failed = &body;
        say(b, &message);
}

/* Both clients split; how it ends is for take_split. */
void client_splits(struct both *b, uint32_t number, int32_t colour, uint64_t ret_calls[2]) {
        for (uint32_t i = 0; i < 2; i++)
                ret_calls[i] = send_comm_split(b->clients[i], b->handles[i], number, colour, 0);
}

struct comm_answer take_split(struct both *b, uint32_t client, uint64_t call) {
        both_wait(b, client_find(b->clients[client], call));
        return take_comm(b->clients[client], call);
}

bool unanswered(struct both *b, const uint64_t calls[2]) {
        bool found = false;

        settle(b);
        for (uint32_t i = 0; i < 2; i++) {
                take_ack(b->clients[i], send_buffer_destroy(b->clients[i], 1), NULL, 0); /* its socket is empty */
                found |= client_find(b->clients[i], calls[i]) != NULL;
        }
        return !found;
}

void assert_unanswered(struct both *b, const uint64_t calls[2]) {
        assert_true(unanswered(b, calls));
}

void assert_split_fails(struct both *b, const uint64_t calls[2], uint32_t code, const char *word) {
        for (uint32_t i = 0; i < 2; i++) {
                struct comm_answer answer = take_split(b, i, calls[i]);

                assert_int_equal(answer.code, code);
                assert_non_null(strstr(answer.text, word));
        }
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */
uint64_t send_id_create(struct client *client, uint32_t handle, uint64_t number) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__IdCreate body = RAILMUX__SESSION__ID_CREATE__INIT;

        body.comm = handle;
        body.number = number;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_ID_CREATE;
        message.id_create = &body;
        return client_send(client, &message);
}

void take_id(struct both *b, uint32_t client, uint64_t call, uint8_t ret_id[COMM_ID_BYTES]) {
        struct inbox_message *entry;

        both_wait(b, client_find(b->clients[client], call));
        entry = client_answer(b->clients[client], call);
        assert_int_equal(entry->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY);
        memcpy(ret_id, entry->message->id_reply->id.data, COMM_ID_BYTES);
        client_drop(b->clients[client], entry);
}

void say_id(struct both *b, uint64_t key, uint64_t number, uint8_t fill, size_t size) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__IdTold body = RAILMUX__PEER__ID_TOLD__INIT;
        uint8_t bytes[2 * COMM_ID_BYTES];

        memset(bytes, fill, sizeof(bytes));
        body.key = key;
        body.number = number;
        body.comm_id.data = bytes;
        body.comm_id.len = size;
        body.code = size ? 0 : fill;
        message.body_case = SAYS(ID_TOLD);
        message.id_told = &body;
        say(b, &message);
}
