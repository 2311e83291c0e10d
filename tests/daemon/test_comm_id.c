/* SPDX-License-Identifier: MIT */
/* Comm ids: whatever is not exactly what this node made for this tenant is refused. */
#include "tests/cmocka_all.h"

#include "daemon/comm_id.h"
#include <string.h>

static const uint8_t key[COMM_ID_KEY_BYTES] = {1, 2, 3};
static const uint8_t node[COMM_ID_NODE_BYTES] = {9, 8, 7};

static void test_good_id(void **unused) {
        uint8_t a[COMM_ID_BYTES], b[COMM_ID_BYTES];

        (void)unused;
        assert_int_equal(comm_id_create(key, node, "default", a), 0);
        assert_int_equal(comm_id_create(key, node, "default", b), 0);
        assert_memory_not_equal(a, b, COMM_ID_BYTES);
        assert_int_equal(comm_id_check(key, "default", a), 0);
        assert_int_equal(comm_id_check(key, "default", b), 0);
}

/* The same for the same communicator and number, and for no other. */
static void test_derived_id(void **unused) {
        uint8_t a[COMM_ID_BYTES], b[COMM_ID_BYTES];

        (void)unused;
        assert_int_equal(comm_id_derive(key, node, "default", 7, 1, a), 0);
        assert_int_equal(comm_id_check(key, "default", a), 0);
        memset(b, 0xff, sizeof(b));
        assert_int_equal(comm_id_derive(key, node, "default", 7, 1, b), 0);
        assert_memory_equal(a, b, COMM_ID_BYTES);
        assert_int_equal(comm_id_derive(key, node, "default", 7, 2, b), 0);
        assert_memory_not_equal(a + 24, b + 24, 32);
        assert_int_equal(comm_id_derive(key, node, "default", 8, 1, b), 0);
        assert_memory_not_equal(a + 24, b + 24, 32);
        assert_int_equal(comm_id_derive(key, node, "other", 7, 1, b), 0);
        assert_int_equal(comm_id_check(key, "default", b), COMM_ID_E_FORGED);
}

static void test_every_flipped_bit(void **unused) {
        uint8_t id[COMM_ID_BYTES];

        (void)unused;
        assert_int_equal(comm_id_create(key, node, "default", id), 0);
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
        assert_int_equal(comm_id_create(key, node, "default", id), 0);
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

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_good_id),
                cmocka_unit_test(test_derived_id),
                cmocka_unit_test(test_every_flipped_bit),
                cmocka_unit_test(test_other_tenant_or_key),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
