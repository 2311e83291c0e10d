/* SPDX-License-Identifier: MIT */
/* On GPUs: how memory becomes known to the daemon, and what happens where it cannot. */
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "client/comm.h"
#include "client/device_bounce.h"
#include "tests/client/device_rig.h"

/* ---- registered memory ---------------------------------------------------------------------------------------------
 */
static int big(struct rig *rig, const void *in, void *out) {
        return rmx_all_reduce(rig->comm, in, out, 8192, RMX_FLOAT32, RMX_SUM, NULL);
}

static void test_register_once(void **state) {
        const struct client_gpu_bell *bell;
        uint32_t a, b;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(big(&rig, rig.a + 4096, rig.b), RMX_OK);
        bell = &last(&rig)->bell;
        a = bell->word[RING_W_IN_BUFFER];
        b = bell->word[RING_W_OUT_BUFFER];
        assert_true(a && b && a != b && !bell->inlined);
        assert_int_equal(offset_of(bell, RING_W_IN_BUFFER), 4096);
        assert_int_equal(offset_of(bell, RING_W_OUT_BUFFER), 0);
        check_buffer(&rig, a, rig.a, BLOCK, 11);
        check_buffer(&rig, b, rig.b, BLOCK, 22);
        assert_int_equal(creations(&rig), 2);

        assert_int_equal(big(&rig, rig.b + 65536, rig.a + BLOCK - 32768), RMX_OK); /* up to the last byte */
        bell = &last(&rig)->bell;
        assert_int_equal(bell->word[RING_W_IN_BUFFER], b);
        assert_int_equal(bell->word[RING_W_OUT_BUFFER], a);
        assert_int_equal(offset_of(bell, RING_W_OUT_BUFFER), BLOCK - 32768);
        assert_int_equal(big(&rig, rig.a + 256, rig.a + 256), RMX_OK);
        bell = &last(&rig)->bell;
        assert_int_equal(bell->word[RING_W_IN_BUFFER], a);
        assert_int_equal(bell->word[RING_W_OUT_BUFFER], a);
        assert_int_equal(offset_of(bell, RING_W_IN_BUFFER), 256);
        assert_int_equal(offset_of(bell, RING_W_OUT_BUFFER), 256);
        assert_int_equal(creations(&rig), 2);
        assert_int_equal(rig.gpu->exports, 2);
        rig_stop(&rig);
}

/* There is none that such a daemon serves. */
static void test_host_memory(void **state) {
        static char memory[4096];
        void *shared = NULL;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(rmx_mem_alloc(rig.crew.session, sizeof(memory), &shared), RMX_E_UNSUPPORTED);
        assert_error_says("rmx_mem_alloc: this daemon serves memory on GPUs only");
        assert_null(shared);
        assert_int_equal(rmx_buffer_register(rig.crew.session, memory, sizeof(memory)), RMX_E_UNSUPPORTED);
        assert_int_equal(rmx_buffer_unregister(rig.crew.session, memory), RMX_E_INVALID);
        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.a, BLOCK), RMX_OK);
        assert_int_equal(rmx_buffer_unregister(rig.crew.session, rig.a), RMX_OK);
        rig_stop(&rig);
}

/* Another allocation where one was: never the old one's buffer. */
static void test_replaced(void **state) {
        uint32_t old, two;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(big(&rig, rig.a, rig.b), RMX_OK);
        old = last(&rig)->bell.word[RING_W_IN_BUFFER];
        rig.gpu->block[0].id = 33;
        assert_int_equal(big(&rig, rig.a, rig.b), RMX_OK);
        two = last(&rig)->bell.word[RING_W_IN_BUFFER];
        assert_int_not_equal(two, old);
        assert_null(buffer_of(&rig, old));
        check_buffer(&rig, two, rig.a, BLOCK, 33);
        assert_int_equal(creations(&rig), 3);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(BUFFER_DESTROY)), 1);

        /* Without numbers of the runtime, the size still tells. */
        rig.gpu->block[0].bytes = BLOCK / 2;
        assert_int_equal(big(&rig, rig.a, rig.b), RMX_OK);
        assert_null(buffer_of(&rig, two));
        check_buffer(&rig, last(&rig)->bell.word[RING_W_IN_BUFFER], rig.a, BLOCK / 2, 33);

        /* One large allocation over the places of both. */
        rig.gpu->n_blocks = 0;
        fake_gpu_add(rig.gpu, rig.a, 3 * BLOCK, 44);
        assert_int_equal(big(&rig, rig.a, rig.b), RMX_OK);
        assert_int_equal(last(&rig)->bell.word[RING_W_IN_BUFFER], last(&rig)->bell.word[RING_W_OUT_BUFFER]);
        assert_int_equal(offset_of(&last(&rig)->bell, RING_W_OUT_BUFFER), 2 * BLOCK);
        check_buffer(&rig, last(&rig)->bell.word[RING_W_IN_BUFFER], rig.a, 3 * BLOCK, 44);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(BUFFER_DESTROY)), 4);
        rig_stop(&rig);
}

static void test_many_allocations(void **state) {
        enum { MANY = 32 };
        static char memory[MANY][32768] __attribute__((aligned(256)));
        uint32_t ids[MANY];
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->n_blocks = 0;
        for (uint32_t i = 0; i < MANY; i++)
                fake_gpu_add(rig.gpu, memory[i], sizeof(memory[i]), 100 + i);
        for (uint32_t round = 0; round < 2; round++) {
                for (uint32_t i = 0; i < MANY; i++) {
                        uint32_t k = i * 13 % MANY;

                        assert_int_equal(big(&rig, memory[k], memory[k]), RMX_OK);
                        if (round)
                                assert_int_equal(last(&rig)->bell.word[RING_W_IN_BUFFER], ids[k]);
                        ids[k] = last(&rig)->bell.word[RING_W_IN_BUFFER];
                        check_buffer(&rig, ids[k], memory[k], sizeof(memory[k]), 100 + k);
                }
        }
        assert_int_equal(creations(&rig), MANY);
        rig_stop(&rig);
}

static void test_refused_memory(void **state) {
        static char host[4096], other[65536];
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        fake_gpu_add(rig.gpu, host, sizeof(host), 0)->residence = CLIENT_GPU_HOST;
        fake_gpu_add(rig.gpu, other, sizeof(other), 5)->device = 1;
        assert_int_equal(big(&rig, host, rig.b), RMX_E_INVALID);
        assert_error_says("is host memory");
        assert_int_equal(big(&rig, other, rig.b), RMX_E_INVALID);
        assert_error_says("is memory of device 1; this rank's is device 3 (GPU 0)");
        assert_int_equal(rmx_all_reduce(rig.comm, other, rig.b, 1, RMX_FLOAT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_int_equal(big(&rig, rig.a + BLOCK - 32764, rig.b), RMX_E_INVALID);
        assert_error_says("run over the end");
        assert_int_equal(big(&rig, rig.a + 2, rig.b), RMX_E_INVALID);
        assert_error_says("not aligned to the 4 bytes");
        rig.crew.fake.refuse_memory = RMX_E_LIMIT;
        assert_int_equal(big(&rig, rig.a, rig.b), RMX_E_LIMIT);
        assert_error_says("the executor cannot map it");
        assert_int_equal(rig.gpu->n_launches, 0);
        assert_int_equal(big(&rig, rig.a, rig.b), RMX_OK); /* nothing of it stays */
        assert_int_equal(rig.gpu->n_launches, 1);
        rig_stop(&rig);
}

/* What no other process can map goes through memory that one can. */
static void test_bounce(void **state) {
        static char secret[4 * BLOCK] __attribute__((aligned(256))), managed[65536] __attribute__((aligned(256)));
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        const struct fake_gpu_launch *in, *call, *out;
        struct rmx_request request;
        struct rmx_comm *other;
        uint32_t exports;
        struct rmx_id id;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        fake_gpu_add(rig.gpu, secret, sizeof(secret), 6)->secret = true;
        fake_gpu_add(rig.gpu, managed, sizeof(managed), 0)->residence = CLIENT_GPU_MANAGED;
        assert_int_equal(big(&rig, secret + 256, rig.b), RMX_OK); /* in alone */
        assert_int_equal(rig.gpu->n_launches, 3);
        assert_int_equal(at(&rig, 2, FAKE_GPU_MARK)->bell.number, 2);
        in = at(&rig, 0, FAKE_GPU_COPY);
        call = at(&rig, 1, FAKE_GPU_CALL);
        assert_ptr_equal(in->from, secret + 256);
        assert_int_equal(in->bytes, 32768);
        check_buffer(&rig, call->bell.word[RING_W_IN_BUFFER], in->to, BLOCK, 1000);
        assert_int_equal(offset_of(&call->bell, RING_W_IN_BUFFER), 0);
        check_buffer(&rig, call->bell.word[RING_W_OUT_BUFFER], rig.b, BLOCK, 22);

        exports = rig.gpu->exports;
        assert_int_equal(big(&rig, secret, managed), RMX_OK); /* both; is not tried to export again */
        assert_int_equal(rig.gpu->exports, exports + 1);      /* but the new region */
        assert_ptr_equal(at(&rig, 3, FAKE_GPU_COPY)->to, in->to);
        call = at(&rig, 4, FAKE_GPU_CALL);
        out = at(&rig, 5, FAKE_GPU_COPY);
        assert_int_equal(call->bell.number, 3);
        assert_int_equal(at(&rig, 6, FAKE_GPU_MARK)->bell.number, 4);
        assert_ptr_equal(out->to, managed);
        assert_int_equal(out->bytes, 32768);
        assert_ptr_not_equal(out->from, in->to);
        check_buffer(&rig, call->bell.word[RING_W_OUT_BUFFER], out->from, BLOCK, 1001);

        /* A larger one; the old one stays, for a graph may use it. */
        assert_int_equal(rmx_all_reduce(rig.comm, secret, secret, BLOCK - 1, RMX_FLOAT16, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(rig.gpu->allocated, 4);
        assert_int_equal(at(&rig, 7, FAKE_GPU_COPY)->bytes, 2 * BLOCK - 2);
        check_buffer(&rig, at(&rig, 8, FAKE_GPU_CALL)->bell.word[RING_W_IN_BUFFER], at(&rig, 7, FAKE_GPU_COPY)->to,
                     2 * BLOCK, 1002);
        assert_int_equal(rig.gpu->freed, 0);
        assert_int_equal(rmx_all_reduce_start(rig.comm, secret, secret, BLOCK, RMX_FLOAT16, RMX_SUM, NULL, &request),
                         RMX_E_UNSUPPORTED);

        /* No two communicators share a region, unless one of them is gone. */
        assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
        assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &other), RMX_OK);
        assert_int_equal(rmx_all_reduce(other, secret, rig.b, 8192, RMX_FLOAT32, rung(other), NULL), RMX_OK);
        assert_int_equal(rig.gpu->allocated, 5);
        assert_int_equal(rmx_comm_destroy(other), RMX_OK);
        assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
        assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &other), RMX_OK);
        assert_int_equal(rmx_all_reduce(other, secret, rig.b, 8192, RMX_FLOAT32, rung(other), NULL), RMX_OK);
        assert_int_equal(rig.gpu->allocated, 5);
        rig_stop(&rig);
        assert_int_equal(rig.gpu->freed, 5);
}

/* Those of a communicator whose kernels are not known to have ended are for no other one, wherever that one lies. */
static void test_bounce_kept(void **state) {
        static char secret[BLOCK] __attribute__((aligned(256)));
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct device_region *region[DEVICE_BOUNCES];
        struct rmx_comm *comm;
        struct rmx_id id;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        fake_gpu_add(rig.gpu, secret, sizeof(secret), 6)->secret = true;
        rig.gpu->stuck = true;
        assert_int_equal(big(&rig, secret, secret + BLOCK / 2), RMX_OK);
        for (uint32_t i = 0; i < DEVICE_BOUNCES; i++) {
                region[i] = rig.comm->bounce[i];
                assert_ptr_equal(region[i]->comm, rig.comm);
        }
        rig.gpu->lost = true; /* so nobody waits for the kernel */
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        rig.crew.comm[0] = NULL;
        for (uint32_t i = 0; i < DEVICE_BOUNCES; i++) {
                assert_non_null(region[i]->comm);
                assert_ptr_not_equal(region[i]->comm, rig.comm); /* an address that any may have from now on */
        }
        rig.gpu->lost = rig.gpu->stuck = false;
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
                assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &comm), RMX_OK);
                assert_int_equal(rmx_all_reduce(comm, secret, rig.b, 8192, RMX_FLOAT32, rung(comm), NULL), RMX_OK);
                assert_int_equal(rig.gpu->allocated, 3);
                assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        }
        rig_stop(&rig);
        assert_int_equal(rig.gpu->freed, 3);
}

/* Memory that has to be copied goes with a group of one, as with a call. */
static void test_bounce_grouped(void **state) {
        static char place;
        void *const stream = &place;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->block[0].secret = rig.gpu->block[1].secret = true;
        for (uint32_t grouped = 0, i = 0; grouped < 2; grouped++) {
                if (grouped)
                        assert_int_equal(rmx_group_start(), RMX_OK);
                assert_int_equal(rmx_all_reduce(rig.comm, rig.a, rig.b, 8192, RMX_FLOAT32, rung(rig.comm), stream),
                                 RMX_OK);
                if (grouped)
                        assert_int_equal(rmx_group_end(), RMX_OK);
                assert_ptr_equal(at(&rig, i, FAKE_GPU_COPY)->from, rig.a);
                assert_ptr_equal(at(&rig, i, FAKE_GPU_COPY)->stream, stream);
                assert_ptr_equal(at(&rig, i + 1, FAKE_GPU_CALL)->stream, stream);
                check_buffer(&rig, at(&rig, i + 1, FAKE_GPU_CALL)->bell.word[RING_W_IN_BUFFER],
                             at(&rig, i, FAKE_GPU_COPY)->to, BLOCK, 1000);
                assert_ptr_equal(at(&rig, i + 2, FAKE_GPU_COPY)->to, rig.b);
                assert_ptr_equal(at(&rig, i + 2, FAKE_GPU_COPY)->stream, stream);
                (void)at(&rig, i + 3, FAKE_GPU_MARK);
                i += 4;
                assert_int_equal(rig.gpu->n_launches, i);
        }
        rig_stop(&rig);
}

/* Between the pieces of a vector nothing is written. */
static void test_bounce_vector(void **state) {
        static char secret[BLOCK] __attribute__((aligned(256)));
        const size_t send[] = {5000, 0, 3}, from[] = {10, 77, 6000}, recv[] = {5000, 9, 0}, to[] = {20000, 0, 5};
        const struct fake_gpu_launch *copy;
        struct rig rig;

        (void)state;
        rig_start(&rig, 3);
        fake_gpu_add(rig.gpu, secret, sizeof(secret), 6)->secret = true;
        assert_int_equal(rmx_all_to_all_v(rig.comm, secret, send, from, secret + BLOCK / 2, recv, to, RMX_INT32, NULL),
                         RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 6);
        at(&rig, 5, FAKE_GPU_MARK);
        copy = at(&rig, 0, FAKE_GPU_COPY);
        assert_ptr_equal(copy->from, secret + 40);
        assert_int_equal(copy->bytes, 20000);
        assert_ptr_equal((const char *)at(&rig, 1, FAKE_GPU_COPY)->to - (const char *)copy->to, 24000 - 40);
        assert_int_equal(at(&rig, 1, FAKE_GPU_COPY)->bytes, 12);
        at(&rig, 2, FAKE_GPU_CALL);
        copy = at(&rig, 3, FAKE_GPU_COPY);
        assert_ptr_equal(copy->to, secret + BLOCK / 2 + 80000);
        assert_int_equal(copy->bytes, 20000);
        copy = at(&rig, 4, FAKE_GPU_COPY);
        assert_ptr_equal(copy->to, secret + BLOCK / 2);
        assert_int_equal(copy->bytes, 36);
        rig_stop(&rig);
}

static void test_announced(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.a + 100, 5000), RMX_OK);
        assert_int_equal(creations(&rig), 1);
        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.a + 100, 5000), RMX_E_INVALID);
        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.b + BLOCK - 10, 11), RMX_E_INVALID);
        assert_error_says("run over the end of their allocation");
        assert_int_equal(big(&rig, rig.a, rig.a), RMX_OK);
        assert_int_equal(creations(&rig), 1);
        check_buffer(&rig, last(&rig)->bell.word[RING_W_IN_BUFFER], rig.a, BLOCK, 11);
        assert_int_equal(rmx_buffer_unregister(rig.crew.session, rig.a + 100), RMX_OK);
        assert_null(buffer_of(&rig, last(&rig)->bell.word[RING_W_IN_BUFFER]));
        assert_int_equal(big(&rig, rig.a, rig.a), RMX_OK); /* it is announced again */
        assert_int_equal(creations(&rig), 2);
        check_buffer(&rig, last(&rig)->bell.word[RING_W_IN_BUFFER], rig.a, BLOCK, 11);

        rig.gpu->block[1].device = 1; /* GPU 2, which this process has not used yet */
        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.b, 1), RMX_OK);
        assert_int_equal(rig.gpu->opened, 2);
        rig.gpu->block[1].device = 9;
        rig.gpu->block[1].id = 99;
        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.b + 1, 1), RMX_E_INVALID);
        assert_error_says("does not serve");
        rig_stop(&rig);
}

/* Others' registrations of the same allocation need it still, and so does what came to lie there since. */
static void test_unregister_shared(void **state) {
        uint32_t buffer;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.a, 4096), RMX_OK);
        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.a + 8192, 4096), RMX_OK);
        assert_int_equal(creations(&rig), 1);
        assert_int_equal(big(&rig, rig.a, rig.a), RMX_OK);
        buffer = last(&rig)->bell.word[RING_W_IN_BUFFER];
        assert_int_equal(rmx_buffer_unregister(rig.crew.session, rig.a), RMX_OK);
        assert_non_null(buffer_of(&rig, buffer));
        assert_int_equal(rmx_buffer_unregister(rig.crew.session, rig.a + 8192), RMX_OK);
        assert_null(buffer_of(&rig, buffer));

        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.a, 4096), RMX_OK);
        rig.gpu->block[0].id += 100; /* freed, and another one is there */
        assert_int_equal(big(&rig, rig.a, rig.a), RMX_OK);
        buffer = last(&rig)->bell.word[RING_W_IN_BUFFER];
        assert_int_equal(rmx_buffer_unregister(rig.crew.session, rig.a), RMX_OK);
        assert_non_null(buffer_of(&rig, buffer));
        rig_stop(&rig);
}

/* ---- registering and unregistering at once ----------------------------------------------------------------------- */
struct race {
        struct rig rig;
        sem_t exporting, go_on;
};
static struct race race;

struct racer {
        pthread_t thread;
        void (*run)(void);
        _Atomic pid_t id;
        _Atomic bool done;
};

static void *racer_main(void *userdata) {
        struct racer *racer = userdata;

        racer->id = gettid();
        racer->run();
        racer->done = true;
        return NULL;
}

/* Starts it, and waits until it is through or gets no further: it sleeps in nothing but what another one holds. */
static void racer_start(struct racer *racer) {
        must(!pthread_create(&racer->thread, NULL, racer_main, racer));
        while (!racer->done && !(racer->id && thread_sleeps(racer->id)))
                sched_yield();
}

static void hold_export(void) {
        race.rig.gpu->at_export_whole = NULL; /* once */
        sem_post(&race.exporting);
        while (sem_wait(&race.go_on))
                must(errno == EINTR);
}

static void register_b(void) {
        must(rmx_buffer_register(race.rig.crew.session, race.rig.b, 4096) == RMX_OK);
}

static void unregister_a(void) {
        must(rmx_buffer_unregister(race.rig.crew.session, race.rig.a) == RMX_OK);
}

static void register_more_of_a(void) {
        must(rmx_buffer_register(race.rig.crew.session, race.rig.a + 8192, 4096) == RMX_OK);
}

/* One thread waits for the daemon, as long as that takes: memory on other GPUs does not, nor does that of the host,
 * which is refused. */
static void test_register_elsewhere(void **state) {
        static char host[65536], other[65536] __attribute__((aligned(256)));
        struct racer holder = {.run = register_b};
        struct rig *rig = &race.rig;

        (void)state;
        rig_start(rig, 2);
        fake_gpu_add(rig->gpu, other, sizeof(other), 55)->device = 1; /* GPU 2 */
        sem_init(&race.exporting, 0, 0);
        sem_init(&race.go_on, 0, 0);
        rig->gpu->at_export_whole = hold_export;
        must(!pthread_create(&holder.thread, NULL, racer_main, &holder));
        while (sem_wait(&race.exporting))
                assert_int_equal(errno, EINTR);
        assert_int_equal(rmx_buffer_register(rig->crew.session, host, 4096), RMX_E_UNSUPPORTED);
        assert_int_equal(rmx_buffer_register(rig->crew.session, other, 4096), RMX_OK);
        assert_int_equal(rmx_buffer_unregister(rig->crew.session, other), RMX_OK);
        assert_int_equal(rmx_buffer_unregister(rig->crew.session, other), RMX_E_INVALID);
        assert_false(holder.done);
        sem_post(&race.go_on);
        pthread_join(holder.thread, NULL);
        assert_int_equal(rmx_buffer_unregister(rig->crew.session, rig->b), RMX_OK);
        sem_destroy(&race.exporting);
        sem_destroy(&race.go_on);
        rig_stop(rig);
}

/* One thread keeps the others from telling the daemon anything: one that ends the only registration in an allocation,
 * and then one that begins another one there. What is registered is known to the daemon afterwards, and what is not,
 * is not. */
static void test_unregister_races(void **state) {
        struct racer holder = {.run = register_b}, ends = {.run = unregister_a}, begins = {.run = register_more_of_a};
        struct rig *rig = &race.rig;
        uint32_t n_created, buffer;

        (void)state;
        rig_start(rig, 2);
        sem_init(&race.exporting, 0, 0);
        sem_init(&race.go_on, 0, 0);
        assert_int_equal(rmx_buffer_register(rig->crew.session, rig->a, 4096), RMX_OK);
        rig->gpu->at_export_whole = hold_export;
        must(!pthread_create(&holder.thread, NULL, racer_main, &holder));
        while (sem_wait(&race.exporting))
                assert_int_equal(errno, EINTR);
        racer_start(&ends);
        racer_start(&begins);
        sem_post(&race.go_on);
        pthread_join(holder.thread, NULL);
        pthread_join(ends.thread, NULL);
        pthread_join(begins.thread, NULL);

        n_created = creations(rig);
        assert_int_equal(big(rig, rig->a, rig->a), RMX_OK);
        assert_int_equal(creations(rig), n_created); /* no collective waits for the daemon */
        buffer = last(rig)->bell.word[RING_W_IN_BUFFER];
        check_buffer(rig, buffer, rig->a, BLOCK, 11);
        assert_int_equal(rmx_buffer_unregister(rig->crew.session, rig->a + 8192), RMX_OK);
        assert_null(buffer_of(rig, buffer));
        sem_destroy(&race.exporting);
        sem_destroy(&race.go_on);
        rig_stop(rig);
}

/* ---- a daemon that stands still ---------------------------------------------------------------------------------- */
static void *call_big(void *userdata) {
        struct rig *rig = userdata;

        must(big(rig, rig->a, rig->b) == RMX_E_ABORTED);
        return NULL;
}

static void *abort_it(void *userdata) {
        must(rmx_comm_abort(userdata) == RMX_OK);
        return NULL;
}

/* A call that has new memory comes back when its communicator is aborted, and the daemon does not keep the memory. */
static void test_aborted(void **state) {
        pthread_t caller, aborter;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        fake_deafen(&rig.crew.fake, true);
        assert_int_equal(pthread_create(&caller, NULL, call_big, &rig), 0);
        fake_wait_unread(&rig.crew.fake);
        assert_int_equal(pthread_create(&aborter, NULL, abort_it, rig.comm), 0);
        pthread_join(caller, NULL); /* otherwise never: the time limit of the test ends it */
        fake_deafen(&rig.crew.fake, false);
        pthread_join(aborter, NULL);
        fake_wait_calls(&rig.crew.fake, BODY(BUFFER_DESTROY), 1);
        assert_int_equal(creations(&rig), 1);
        rig_stop(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_register_once),      cmocka_unit_test(test_host_memory),
                cmocka_unit_test(test_replaced),           cmocka_unit_test(test_many_allocations),
                cmocka_unit_test(test_refused_memory),     cmocka_unit_test(test_announced),
                cmocka_unit_test(test_unregister_shared),  cmocka_unit_test(test_bounce),
                cmocka_unit_test(test_bounce_kept),        cmocka_unit_test(test_bounce_grouped),
                cmocka_unit_test(test_bounce_vector),      cmocka_unit_test(test_unregister_races),
                cmocka_unit_test(test_register_elsewhere), cmocka_unit_test(test_aborted),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
