/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "fixture.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/hip/hip.h"
#include "ring/line.h"

static _Alignas(BELL_LATCH_BYTES) unsigned char latch_page[BELL_LATCH_BYTES];

uint64_t fixture_pool_bytes = FIXTURE_POOL;

void fixture_open(struct fixture *f, uint32_t policy) {
        const struct plane_options options = {.policy = policy, .pool_bytes = fixture_pool_bytes};

        *f = (struct fixture){.ops = &railmux_gpu_plane};
        assert_int_equal(f->ops->open(&options, &f->plane, f->error), 0);
        f->table = f->plane->tables.device;
        f->latch = (void *)latch_page;
        f->latch->lifted = 7;
        if (fixture_queues())
                assert_int_equal(fixture_latch(f), 0);
}

bool fixture_queues(void) {
        const char *wish = getenv("RAILMUX_GPU_QUEUE");

        return wish && *wish == '1';
}

int fixture_latch(struct fixture *f) {
        const bool pins = fake_pins_running;
        int r;

        fake_pins_running = true; /* as NVIDIA's driver does, and queues only that does */
        r = f->ops->latch(f->plane, f->latch, f->error);
        fake_pins_running = pins;
        return r;
}

void fixture_close(struct fixture *f) {
        f->ops->close(f->plane);
        fake_assert_clean();
}

struct bell_header *client_header(const struct client *client) {
        return (struct bell_header *)(void *)(client->area + BELL_OFFSET_HEADER);
}

/* Time goes on only when what has been launched has begun, unless that is what a test is about. */
static void begins(struct fixture *f) {
        for (bool begun = false; !begun; sched_yield()) {
                plane_lock(f->plane);
                begun = park_has_room(&f->plane->park) || f->plane->fault;
                plane_unlock(f->plane);
                begun = begun || atomic_load(&fake.no_room) || atomic_load(&fake.not_begun) ||
                        atomic_load(&fake.deaf) || atomic_load(&fake.dies);
        }
}

void fixture_tick(struct fixture *f) {
        begins(f);
        assert_int_equal(f->ops->tick(f->plane, f->error), 0);
}

void fixture_silence(struct fixture *f, uint32_t ms) {
        fixture_tick(f);
        for (uint32_t t = 0; t < ms; t += 10) {
                fake_clock_advance_ms(10);
                fixture_tick(f);
        }
}

void client_init(struct client *client, uint64_t session) {
        uint32_t *released;

        *client = (struct client){.session = session, .soon_fd = -1};
        client->area = fake_client_alloc(BELL_AREA_BYTES, &client->memory);
        released = (uint32_t *)(void *)(client->area + BELL_OFFSET_RELEASED);
        *client_header(client) =
                (struct bell_header){.magic = BELL_MAGIC, .depth = BELL_DEPTH, .parked = 7, .closed = 7};
        for (uint32_t i = 0; i < BELL_DEPTH; i++)
                released[i] = bell_released_first(i);
}

void client_deinit(struct client *client) {
        fake_client_free(client->area);
}

int client_attach(struct fixture *f, struct client *client) {
        return f->ops->ring_attach(f->plane, client->session, &client->memory, &client->host, client->soon_fd,
                                   f->error);
}

void client_ring(struct client *client, uint32_t sequence) {
        uint64_t *line = (uint64_t *)(void *)(client->area + BELL_OFFSET_LINES) + sequence % BELL_LINES * RING_WORDS;

        __atomic_store_n(&client_header(client)->counter, sequence, __ATOMIC_RELAXED);
        client_release(client, sequence - BELL_DEPTH); /* it has waited for that */
        for (uint32_t i = 0; i < RING_WORDS; i++)
                line[i] = (uint64_t)sequence << 32 | (i == RING_W_FLAGS ? 2u << BELL_LANES_SHIFT : 0);
}

void client_answer(struct client *client, uint32_t sequence) {
        uint64_t *done = (uint64_t *)(void *)(client->area + BELL_OFFSET_DONE) + sequence % BELL_DEPTH * BELL_LANES;

        done[0] = done[1] = sequence;
}

void client_release(struct client *client, uint32_t sequence) {
        ((uint32_t *)(void *)(client->area + BELL_OFFSET_RELEASED))[sequence % BELL_DEPTH] = sequence;
}

const struct table_ring *fixture_ring(const struct fixture *f, uint64_t session) {
        for (uint32_t i = 0; i < f->table->n_rings; i++)
                if (f->table->rings[i].key && f->table->rings[i].session == session)
                        return &f->table->rings[i];
        return NULL;
}

static uint32_t place_of(const struct fixture *f, uint64_t session) {
        uint32_t i = 0;

        while (i < TABLE_RINGS && f->plane->rings[i].session != session)
                i++;
        return i;
}

const struct table_buffer *fixture_buffer(const struct fixture *f, uint64_t session, uint32_t id) {
        uint32_t ring = place_of(f, session);

        for (uint32_t i = 0; ring < TABLE_RINGS && i < TABLE_PROBES; i++) {
                const struct table_buffer *b = &f->table->buffers[(table_hash(ring, id) + i) % TABLE_BUFFERS];

                if (b->key == SHADOW_KEY_VALID && b->ring == ring && b->id == id)
                        return b;
        }
        return NULL;
}

const struct table_rank *fixture_rank(const struct fixture *f, uint64_t session, uint32_t handle) {
        uint32_t ring = place_of(f, session);

        for (uint32_t i = 0; ring < TABLE_RINGS && i < TABLE_PROBES; i++) {
                const struct table_handle *h = &f->table->handles[(table_hash(ring, handle) + i) % TABLE_HANDLES];

                if (h->key == SHADOW_KEY_VALID && h->ring == ring && h->handle == handle)
                        return &f->table->ranks[h->rank];
        }
        return NULL;
}
