/* SPDX-License-Identifier: MIT */
/* Comm ids: whatever is not exactly what this node made for this tenant is refused. */
#include "tests/cmocka_all.h"

#include "daemon/comm_id.h"
#include <errno.h>
#include <string.h>

static const uint8_t key[COMM_ID_KEY_BYTES] = {1, 2, 3};
static const uint8_t node[COMM_ID_NODE_BYTES] = {9, 8, 7};
static const struct comm_id_maker maker = {.key = key, .node = node, .address = "10.0.0.7:7600"};

static void test_good_id(void **unused) {
        uint8_t a[COMM_ID_BYTES], b[COMM_ID_BYTES];

        (void)unused;
        assert_int_equal(comm_id_create(&maker, "default", a), 0);
        assert_int_equal(comm_id_create(&maker, "default", b), 0);
        assert_memory_not_equal(a, b, COMM_ID_BYTES);
        assert_int_equal(comm_id_check(key, "default", a), 0);
        assert_int_equal(comm_id_check(key, "default", b), 0);
}

/* The same for the same communicator and number, and for no other. */
static void test_derived_id(void **unused) {
        uint8_t a[COMM_ID_BYTES], b[COMM_ID_BYTES];

        (void)unused;
        assert_int_equal(comm_id_derive(&maker, "default", 7, 1, a), 0);
        assert_int_equal(comm_id_check(key, "default", a), 0);
        memset(b, 0xff, sizeof(b));
        assert_int_equal(comm_id_derive(&maker, "default", 7, 1, b), 0);
        assert_memory_equal(a, b, COMM_ID_BYTES);
        assert_int_equal(comm_id_derive(&maker, "default", 7, 2, b), 0);
        assert_memory_not_equal(a + 24, b + 24, 32);
        assert_int_equal(comm_id_derive(&maker, "default", 8, 1, b), 0);
        assert_memory_not_equal(a + 24, b + 24, 32);
        assert_int_equal(comm_id_derive(&maker, "other", 7, 1, b), 0);
        assert_int_equal(comm_id_check(key, "default", b), COMM_ID_E_FORGED);
        /* A communicator over several nodes is known by its key, which may be any number. */
        assert_int_equal(comm_id_derive_shared(&maker, "default", 7, 1, b), 0);
        assert_memory_not_equal(a + 24, b + 24, 32);
        assert_int_equal(comm_id_check(key, "default", b), 0);
        assert_int_equal(comm_id_derive_shared(&maker, "default", 7, 1, a), 0);
        assert_memory_equal(a, b, COMM_ID_BYTES);
        assert_int_equal(comm_id_derive_shared(&maker, "default", 7, 2, b), 0);
        assert_memory_not_equal(a + 24, b + 24, 32);
}

static void test_every_flipped_bit(void **unused) {
        uint8_t id[COMM_ID_BYTES];

        (void)unused;
        assert_int_equal(comm_id_create(&maker, "default", id), 0);
        for (unsigned int bit = 0; bit < COMM_ID_BYTES * 8; bit++) {
                id[bit / 8] ^= (uint8_t)(1u << bit % 8);
                assert_int_equal(comm_id_check(key, "default", id), COMM_ID_E_FORGED);
                id[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_int_equal(comm_id_check(key, "default", id), 0);
}

static void test_other_tenant_or_key(void **unused) {
        uint8_t id[COMM_ID_BYTES], other[COMM_ID_KEY_BYTES];

        (void)unused;
        assert_int_equal(comm_id_create(&maker, "default", id), 0);
        assert_int_equal(comm_id_check(key, "defaulu", id), COMM_ID_E_FORGED);
        assert_int_equal(comm_id_check(key, "defaul", id), COMM_ID_E_FORGED);
        assert_int_equal(comm_id_check(key, "", id), COMM_ID_E_FORGED);
        for (unsigned int i = 0; i < COMM_ID_KEY_BYTES; i++) {
                memcpy(other, key, sizeof(other));
                other[i] ^= 1;
                assert_int_equal(comm_id_check(other, "default", id), COMM_ID_E_FORGED);
        }
        memset(id, 0, sizeof(id));
        assert_int_equal(comm_id_check(key, "default", id), COMM_ID_E_FORGED);
}

static void test_where(void **unused) {
        static const char longest[] = "[1234:5678:9abc:def0:1234:5678::7]:7600";
        uint8_t id[COMM_ID_BYTES], other[COMM_ID_NODE_BYTES] = {9, 8, 7, 6};
        struct comm_id_maker from = {.key = key, .node = node, .address = longest};
        char address[COMM_ID_ADDRESS_BYTES];

        (void)unused;
        assert_int_equal(sizeof(longest), COMM_ID_ADDRESS_BYTES);
        assert_int_equal(comm_id_create(&from, "default", id), 0);
        assert_true(comm_id_of(id, node));
        assert_false(comm_id_of(id, other));
        memset(address, 0x5a, sizeof(address));
        assert_int_equal(comm_id_address(id, address), 0);
        assert_string_equal(address, longest);
        id[95] = 'x'; /* as if there were no end */
        assert_int_equal(comm_id_address(id, address), COMM_ID_E_NOWHERE);
        from.address = "";
        assert_int_equal(comm_id_create(&from, "default", id), 0);
        assert_int_equal(comm_id_check(key, "default", id), 0);
        assert_int_equal(comm_id_address(id, address), COMM_ID_E_NOWHERE);
        from.address = "[1234:5678:9abc:def0:1234:5678::77]:7600";
        memset(id, 0x5a, sizeof(id));
        assert_int_equal(comm_id_create(&from, "default", id), -ENAMETOOLONG);
        assert_int_equal(id[0], 0x5a);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_good_id),
                cmocka_unit_test(test_derived_id),
                cmocka_unit_test(test_every_flipped_bit),
                cmocka_unit_test(test_other_tenant_or_key),
                cmocka_unit_test(test_where),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
