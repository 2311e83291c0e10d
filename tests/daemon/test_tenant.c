/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "daemon/call.h"
#include "daemon/manager.h"
#include "daemon/session.h"
#include "daemon/tenant.h"
#include <errno.h>
#include <string.h>

static void test_charge_and_refusal(void **unused) {
        uint64_t limits[CHARGE_KIND_COUNT] = {[CHARGE_SESSIONS] = 2, [CHARGE_BYTES] = 100};
        struct charge a = CHARGE_INIT, b = CHARGE_INIT, c = CHARGE_INIT, bytes = CHARGE_INIT;
        struct tenant *tenant;
        char text[160] = "";

        (void)unused;
        assert_int_equal(tenant_new("blue", limits, &tenant), 0);
        assert_int_equal(tenant_charge(tenant, &a, CHARGE_SESSIONS, 1, text, sizeof(text)), 0);
        assert_int_equal(tenant_charge(tenant, &b, CHARGE_SESSIONS, 1, text, sizeof(text)), 0);
        assert_int_equal(tenant_charge(tenant, &c, CHARGE_SESSIONS, 1, text, sizeof(text)), TENANT_E_LIMIT);
        assert_string_equal(text, "tenant blue: sessions limit 2 reached");
        assert_int_equal(tenant_charge(tenant, &c, CHARGE_SESSIONS, 1, text, sizeof(text)), TENANT_E_LIMIT);
        assert_int_equal(tenant->account.refused[CHARGE_SESSIONS], 2);
        assert_int_equal(tenant->account.used[CHARGE_SESSIONS], 2);
        assert_int_equal(tenant_charge(tenant, &bytes, CHARGE_BYTES, UINT64_MAX, text, sizeof(text)), TENANT_E_LIMIT);
        assert_int_equal(tenant_charge(tenant, &bytes, CHARGE_BYTES, 100, text, sizeof(text)), 0);
        charge_release(&a);
        assert_int_equal(tenant_charge(tenant, &c, CHARGE_SESSIONS, 1, text, sizeof(text)), 0);
        limits[CHARGE_SESSIONS] = 1; /* lowered below what is in use: nothing is taken away */
        tenant_set_limits(tenant, limits);
        assert_int_equal(tenant_charge(tenant, &a, CHARGE_SESSIONS, 1, text, sizeof(text)), TENANT_E_LIMIT);
        charge_release(&b);
        charge_release(&c);
        charge_release(&bytes);
        assert_null(tenant_free(tenant));
        assert_null(tenant_free(NULL));
}

static void test_names(void **unused) {
        uint64_t limits[CHARGE_KIND_COUNT] = {0};
        char name[TENANT_NAME_MAX + 1];
        struct tenant *tenant = NULL;
        struct manager manager = {0};

        (void)unused;
        memset(name, 'x', TENANT_NAME_MAX);
        name[TENANT_NAME_MAX] = 0;
        assert_int_equal(tenant_new(name, limits, &tenant), -EINVAL);
        assert_null(tenant);
        assert_int_equal(tenant_new(TENANT_DEFAULT, limits, &tenant), 0);
        tenant->prev = tenant;
        manager.tenants = tenant;
        assert_ptr_equal(tenant_find(&manager, "default"), tenant);
        assert_null(tenant_find(&manager, "other"));
        assert_ptr_equal(tenant_choose(&manager, &(struct tenant_identity){.listener = "client", .uid = 5}), tenant);
        tenant_free(tenant);
}

static void test_waiting_calls(void **unused) {
        struct session a = {0}, b = {0}, *session;
        struct call *list = NULL;
        uint64_t id;

        (void)unused;
        assert_int_equal(call_add(&list, &a, 1), 0);
        assert_int_equal(call_add(&list, &b, 1), 0);
        assert_int_equal(call_add(&list, &a, 1), 0); /* the same call again waits once */
        assert_int_equal(call_add(&list, &a, 2), 0);
        assert_int_equal(a.n_calls, 2);
        call_drop(&list, &a);
        assert_int_equal(a.n_calls, 0);
        assert_true(call_pop(&list, &session, &id));
        assert_ptr_equal(session, &b);
        assert_false(call_pop(&list, &session, &id));
        for (uint64_t i = 1; i <= SESSION_CALLS_MAX; i++)
                assert_int_equal(call_add(&list, &a, i), 0);
        assert_int_equal(call_add(&list, &a, SESSION_CALLS_MAX + 1), CALL_E_TOO_MANY);
        assert_int_equal(call_add(&list, &a, 5), 0);
        call_drop(&list, NULL);
        assert_null(list);
        assert_int_equal(a.n_calls, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_charge_and_refusal),
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_waiting_calls),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
