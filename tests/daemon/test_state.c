/* SPDX-License-Identifier: MIT */
/* The state memfd: what a successor reads when its predecessor died at any store. */
#include "tests/cmocka_all.h"

#include "daemon/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct state_record session_record(uint64_t number) {
        struct state_record record = {.kind = STATE_SESSION};

        record.session.session = number;
        record.session.pid = (uint32_t)number + 1000;
        snprintf(record.session.name, sizeof(record.session.name), "somebody");
        snprintf(record.session.tenant, sizeof(record.session.tenant), "default");
        return record;
}

static int copy_of(const void *data, size_t size) {
        int fd = memfd_create("copy", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)size), 0);
        assert_int_equal(pwrite(fd, data, size, 0), size);
        return fd;
}

static uint8_t *contents(const struct state *state, size_t *ret_size) {
        struct stat st;
        uint8_t *data;

        assert_int_equal(fstat(state_fd(state), &st), 0);
        data = malloc((size_t)st.st_size);
        assert_non_null(data);
        assert_int_equal(pread(state_fd(state), data, (size_t)st.st_size, 0), st.st_size);
        *ret_size = (size_t)st.st_size;
        return data;
}

/* Every record a reader finds must be whole. */
static unsigned int check_whole(struct state *state) {
        uint32_t cursor = 0, slot;
        unsigned int n = 0;

        while (state_next(state, &cursor, &slot) == 0) {
                struct state_record *record = state_at(state, slot);

                assert_int_equal(record->kind, STATE_SESSION);
                assert_int_equal(record->session.pid, record->session.session + 1000);
                assert_string_equal(record->session.name, "somebody");
                assert_string_equal(record->session.tenant, "default");
                n++;
        }
        assert_int_equal(n, state_count(state));
        return n;
}

static void test_adopt_finds_all(void **unused) {
        struct state *state, *successor;
        uint32_t slots[2000];

        (void)unused;
        assert_int_equal(state_new(&state), 0);
        for (uint64_t i = 0; i < 2000; i++) { /* grows several times */
                struct state_record record = session_record(i);

                assert_int_equal(state_add(state, &record, &slots[i]), 0);
        }
        for (uint64_t i = 0; i < 2000; i += 3)
                state_remove(state, slots[i]);
        assert_int_equal(state_take_session(state), 1);
        assert_int_equal(state_take_session(state), 2);
        assert_int_equal(state_adopt(dup(state_fd(state)), &successor), 0);
        assert_int_equal(check_whole(successor), 2000 - 667);
        assert_memory_equal(state_key(state), state_key(successor), COMM_ID_KEY_BYTES);
        assert_int_equal(state_take_session(successor), 3);
        assert_int_equal(state_take_comm(successor), 1);
        state_count_restart(successor);
        assert_int_equal(state_restarts(state), 1);
        state_free(successor);
        state_free(state);
}

static void test_slots_are_used_again(void **unused) {
        struct state_record record = session_record(1);
        struct state *state;
        uint32_t slot, other;

        (void)unused;
        assert_int_equal(state_new(&state), 0);
        for (unsigned int i = 0; i < 5 * STATE_SLOTS_STEP; i++) {
                assert_int_equal(state_add(state, &record, &slot), 0);
                assert_int_equal(state_add(state, &record, &other), 0);
                assert_int_not_equal(slot, other);
                state_remove(state, slot);
                state_remove(state, other);
        }
        assert_true(slot < 2 && other < 2);
        assert_int_equal(state_count(state), 0);
        assert_null(state_at(state, STATE_SLOT_NONE));
        state_remove(state, STATE_SLOT_NONE);
        state_free(state);
}

static void test_rail_host(void **unused) {
        char host[STATE_HOST_BYTES + 1];
        struct state *state, *successor;
        uint8_t *data;
        size_t size;
        int fd;

        (void)unused;
        assert_int_equal(state_new(&state), 0);
        assert_null(state_rail_host(state));
        state_note_rail_host(state, "10.0.0.1");
        state_note_rail_host(state, "2001:db8::1");
        assert_int_equal(state_adopt(dup(state_fd(state)), &successor), 0);
        assert_string_equal(state_rail_host(successor), "2001:db8::1");
        state_free(successor);
        memset(host, 'x', sizeof(host) - 1);
        host[sizeof(host) - 1] = '\0';
        state_note_rail_host(state, host);
        assert_string_equal(state_rail_host(state), "2001:db8::1");
        data = contents(state, &size);
        memset(((struct state_header *)(void *)data)->rail_host.host, 'y', STATE_HOST_BYTES);
        fd = copy_of(data, size);
        assert_int_equal(state_adopt(fd, &successor), 0);
        assert_null(state_rail_host(successor));
        state_free(successor);
        free(data);
        state_free(state);
}

static void test_drained_rails(void **unused) {
        char longest[STATE_RAIL_BYTES], name[STATE_RAIL_BYTES];
        struct state *state, *successor;
        uint8_t *data;
        size_t size;
        uint32_t n = 0;
        int fd;

        (void)unused;
        assert_int_equal(state_new(&state), 0);
        memset(longest, 'x', sizeof(longest) - 1);
        longest[sizeof(longest) - 1] = '\0';
        state_drained_forget(state, "a");
        assert_int_equal(state_drained_note(state, longest), 0);
        for (uint32_t i = 0; i < STATE_DRAINED; i++) {
                snprintf(name, sizeof(name), "r%u", i);
                assert_int_equal(state_drained_note(state, name), i < STATE_DRAINED - 1 ? 0 : STATE_E_FULL);
        }
        assert_int_equal(state_drained_note(state, "r3"), 0); /* is there */
        state_drained_forget(state, "r3");
        state_drained_forget(state, "r3");
        assert_int_equal(state_drained_note(state, "a"), 0);
        assert_int_equal(state_drained_note(state, "b"), STATE_E_FULL);
        assert_int_equal(state_adopt(dup(state_fd(state)), &successor), 0);
        for (uint32_t i = 0; i < STATE_DRAINED; i++) {
                assert_non_null(state_drained_rail(successor, i));
                n += strcmp(state_drained_rail(successor, i), longest) == 0 ||
                     strcmp(state_drained_rail(successor, i), "a") == 0;
                assert_string_not_equal(state_drained_rail(successor, i), "r3");
        }
        assert_int_equal(n, 2);
        state_free(successor);

        /* What is no name, or was not written to its end, is none. */
        data = contents(state, &size);
        memset(((struct state_header *)(void *)data)->drained[0].rail, 'y', STATE_RAIL_BYTES);
        ((struct state_header *)(void *)data)->drained[1].valid = 1;
        fd = copy_of(data, size);
        assert_int_equal(state_adopt(fd, &successor), 0);
        assert_null(state_drained_rail(successor, 0));
        assert_null(state_drained_rail(successor, 1));
        assert_non_null(state_drained_rail(successor, 2));
        assert_int_equal(state_drained_note(successor, "b"), 0);
        assert_int_equal(state_drained_note(successor, "c"), 0);
        assert_int_equal(state_drained_note(successor, "d"), STATE_E_FULL);
        state_free(successor);
        free(data);
        state_free(state);
}

/* A kill between any two stores of state_new and state_add: the words written so far, in the order of the code. */
static void test_killed_at_every_store(void **unused) {
        struct state_record record = session_record(7);
        uint8_t *before, *after, *image;
        size_t size, n;
        struct state *state, *successor;
        uint32_t slot;
        size_t at, valid_at;
        int headless;

        (void)unused;
        assert_int_equal(state_new(&state), 0);
        before = contents(state, &size);
        assert_int_equal(state_add(state, &record, &slot), 0);
        after = contents(state, &n);
        assert_int_equal(n, size);
        at = STATE_HEADER_BYTES + (size_t)slot * STATE_RECORD_BYTES;
        valid_at = at + offsetof(struct state_record, valid);
        image = malloc(size);
        assert_non_null(image);
        memcpy(image, before, size);
        for (size_t i = 4; i <= STATE_RECORD_BYTES; i++) { /* kind and body grow; valid still says free */
                int fd = copy_of(image, size);

                assert_int_equal(state_adopt(fd, &successor), 0);
                assert_int_equal(check_whole(successor), 0);
                /* and the slot is good for a new record */
                assert_int_equal(state_add(successor, &record, &slot), 0);
                assert_int_equal(check_whole(successor), 1);
                state_free(successor);
                if (i < STATE_RECORD_BYTES)
                        image[at + i] = after[at + i];
        }
        memcpy(image + valid_at, after + valid_at, 4);
        assert_memory_equal(image, after, size);
        assert_int_equal(state_adopt(copy_of(image, size), &successor), 0);
        assert_int_equal(check_whole(successor), 1);
        state_free(successor);

        /* The header without its last word is no state at all. */
        memset(image, 0, offsetof(struct state_header, magic) + 8);
        headless = copy_of(image, size);
        assert_int_equal(state_adopt(headless, &successor), STATE_E_UNUSABLE);
        close(headless);
        free(image);
        free(before);
        free(after);
        state_free(state);
}

static void test_truncated_anywhere(void **unused) {
        struct state_record late = session_record(99);
        struct state *state, *successor;
        uint8_t *data;
        size_t size, whole;
        uint32_t slot;

        (void)unused;
        assert_int_equal(state_new(&state), 0);
        for (uint64_t i = 0; i < 20; i++) {
                struct state_record record = session_record(i);

                assert_int_equal(state_add(state, &record, &slot), 0);
        }
        data = contents(state, &size);
        for (size_t n = 0; n < STATE_HEADER_BYTES + 21 * STATE_RECORD_BYTES; n += 61) {
                int fd = copy_of(data, n);
                int r = state_adopt(fd, &successor);

                if (n < STATE_HEADER_BYTES) {
                        assert_int_equal(r, STATE_E_UNUSABLE);
                        close(fd);
                        continue;
                }
                assert_int_equal(r, 0);
                whole = (n - STATE_HEADER_BYTES) / STATE_RECORD_BYTES;
                assert_int_equal(check_whole(successor), whole < 20 ? whole : 20);
                assert_int_equal(state_add(successor, &late, &slot), 0); /* grows the cut file */
                state_free(successor);
        }
        free(data);
        state_free(state);
}

static void test_foreign_memory(void **unused) {
        uint8_t data[8192];
        struct state *state;
        int fd, pipes[2];

        (void)unused;
        memset(data, 0x5a, sizeof(data));
        fd = copy_of(data, sizeof(data));
        assert_int_equal(state_adopt(fd, &state), STATE_E_UNUSABLE);
        close(fd);
        assert_int_equal(pipe(pipes), 0);
        assert_int_equal(state_adopt(pipes[0], &state), STATE_E_UNUSABLE);
        close(pipes[0]);
        close(pipes[1]);
}

/* What version 1 wrote stands where it did; what is new stands where version 1 wrote zeros. */
_Static_assert(offsetof(struct state_ring, area) == 24 && offsetof(struct state_buffer, gpu) == 20 &&
                       offsetof(struct state_buffer, memory) == 24 && offsetof(struct state_member, leave) == 40 &&
                       offsetof(struct state_member, staging) == 48 && offsetof(struct state_comm, status) == 48 &&
                       offsetof(struct state_executor, pci) == 80 && offsetof(struct state_comm, stand) == 336 &&
                       offsetof(struct state_comm, lanes) == 344 && offsetof(struct state_comm, exchange_min) == 368 &&
                       offsetof(struct state_session, opened_ns) == 168,
               "bodies only grow at their ends");

/* What an older version did not write is 0. */
static void test_older_comm(void **unused) {
        (void)unused;
        for (uint32_t version = STATE_VERSION_MIN; version <= STATE_VERSION; version++) {
                struct state_record record = {.kind = STATE_COMM};
                struct state *state, *successor;
                struct state_header *header;
                uint32_t slot;

                record.comm.comm = 5;
                record.comm.n_ranks = 2;
                record.comm.lanes = version < 4 ? 0 : 31;
                assert_int_equal(state_new(&state), 0);
                assert_int_equal(state_add(state, &record, &slot), 0);
                header = mmap(NULL, STATE_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd(state), 0);
                assert_true(header != MAP_FAILED);
                header->version = version;
                assert_int_equal(state_adopt(dup(state_fd(state)), &successor), 0);
                assert_int_equal(header->version, STATE_VERSION);
                assert_int_equal(state_at(successor, slot)->comm.n_ranks, 2);
                assert_int_equal(state_at(successor, slot)->comm.lanes, version < 4 ? 0 : 31);
                state_free(successor);
                munmap(header, STATE_HEADER_BYTES);
                state_free(state);
        }
}

/* A record of a kind that this program does not know is treated as free, not misread. */
static void test_unknown_kind_and_version(void **unused) {
        struct state_record record = session_record(3);
        struct state *state, *successor;
        struct state_header *header;
        uint32_t slot;

        (void)unused;
        assert_int_equal(state_new(&state), 0);
        assert_int_equal(state_add(state, &record, &slot), 0);
        state_at(state, slot)->kind = STATE_KIND_COUNT;
        assert_int_equal(state_adopt(dup(state_fd(state)), &successor), 0);
        assert_int_equal(state_count(successor), 0);
        state_free(successor);
        header = mmap(NULL, STATE_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd(state), 0);
        assert_true(header != MAP_FAILED);
        header->version = STATE_VERSION + 1;
        assert_int_equal(state_adopt(state_fd(state), &successor), STATE_E_UNUSABLE);
        header->version = STATE_VERSION_MIN - 1;
        assert_int_equal(state_adopt(state_fd(state), &successor), STATE_E_UNUSABLE);
        /* One step back is fine, and what is written from now on is of this version. */
        header->version = STATE_VERSION_MIN;
        assert_int_equal(state_adopt(dup(state_fd(state)), &successor), 0);
        assert_int_equal(header->version, STATE_VERSION);
        assert_int_equal(state_devices(successor), 0);
        state_free(successor);
        munmap(header, STATE_HEADER_BYTES);
        state_free(state);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_adopt_finds_all),
                cmocka_unit_test(test_slots_are_used_again),
                cmocka_unit_test(test_rail_host),
                cmocka_unit_test(test_drained_rails),
                cmocka_unit_test(test_killed_at_every_store),
                cmocka_unit_test(test_truncated_anywhere),
                cmocka_unit_test(test_foreign_memory),
                cmocka_unit_test(test_unknown_kind_and_version),
                cmocka_unit_test(test_older_comm),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
