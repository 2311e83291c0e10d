/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "daemon/call.h"
#include "daemon/manager.h"
#include "daemon/session.h"
#include "daemon/tenant.h"
#include "daemon/tenants.h"
#include <errno.h>
#include <string.h>
#include <utlist.h>

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

/* What is still being closed counts when somebody new comes. */
static void test_closing(void **unused) {
        uint64_t limits[CHARGE_KIND_COUNT] = {[CHARGE_FDS] = 10};
        struct charge held = CHARGE_INIT, closing = CHARGE_INIT, more = CHARGE_INIT;
        struct tenant *tenant;
        char text[160] = "";

        (void)unused;
        assert_int_equal(tenant_new("blue", limits, &tenant), 0);
        assert_int_equal(tenant_charge(tenant, &held, CHARGE_FDS, 10, text, sizeof(text)), 0);
        assert_false(tenant_closes_slowly(tenant, text, sizeof(text)));
        assert_int_equal(charge_take(&closing, &tenant->closing, CHARGE_FDS, 1), 0);
        assert_true(tenant_closes_slowly(tenant, text, sizeof(text)));
        assert_string_equal(
                text, "tenant blue: fds limit 10 reached, with 1 descriptors of its processes that take long to close");
        charge_release(&held);
        assert_false(tenant_closes_slowly(tenant, text, sizeof(text)));
        assert_int_equal(charge_take(&more, &tenant->closing, CHARGE_FDS, 100), 0); /* no limit of their own */
        assert_int_equal(tenant_closing(tenant), 101);
        assert_true(tenant_closes_slowly(tenant, text, sizeof(text)));
        charge_release(&more);
        charge_release(&closing);
        tenant_free(tenant);
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

static void test_specs(void **unused) {
        static const struct {
                const char *text, *says;
        } wrong[] = {
                {"blue", "NAME=UID"},
                {"=5", "a name of"},
                {"default=5", "other than default"},
                {"a/b=5", "a name of"},
                {"abcdefghijklmnopqrstuvwxyz012345=5", "a name of"},
                {"blue=", "number of a user"},
                {"blue=root", "number of a user"},
                {"blue=4294967295", "number of a user"},
                {"blue=5-", "not below"},
                {"blue=5-4", "not below"},
                {"blue=5,weight=0", "1 .. 1000"},
                {"blue=5,weight=1001", "1 .. 1000"},
                {"blue=5,weight", "weight=N"},
                {"blue=5,", "weight=N"},
                {"blue=5,class", "class="},
                {"blue=5,class=", "latency, normal or bulk"},
                {"blue=5,weight=2,class=slow", "latency, normal or bulk"},
                {"blue=5,class=bulk,weight=0", "1 .. 1000"},
                {"blue=5-4,class=bulk", "not below"},
                {"blue=5,rails=", "names of rails"},
                {"blue=5,rails=r0/", "names of rails"},
                {"blue=5,rails=/r0", "names of rails"},
                {"blue=5,rails=r0//r1", "names of rails"},
                {"blue=5,rails=r0+r1", "names of rails"},
                {"blue=5,rails=abcdefghijklmnopqrstuvwxyz012345", "names of rails"},
                {"blue=5,share=3", "weight=N"},
                {"blue=5 blue=6", "no other tenant has"},
                {"blue=5-9 red=9", "no other tenant's"},
                {"blue=5 red=1-9", "no other tenant's"},
        };
        struct tenant_spec specs[TENANT_SPECS_MAX];
        char why[TENANTS_WHY_MAX];
        uint32_t n = 7;

        (void)unused;
        assert_int_equal(tenant_specs_parse(" \n", specs, &n, why), 0);
        assert_int_equal(n, 0);
        assert_int_equal(tenant_specs_parse("blue=5  red=7-4294967294,weight=1000\n", specs, &n, why), 0);
        assert_int_equal(n, 2);
        assert_string_equal(specs[0].name, "blue");
        assert_true(specs[0].first_uid == 5 && specs[0].last_uid == 5 && specs[0].weight == 1);
        assert_string_equal(specs[1].name, "red");
        assert_true(specs[1].first_uid == 7 && specs[1].last_uid == 4294967294u && specs[1].weight == 1000);
        assert_true(specs[0].class == FABRIC_NORMAL && specs[1].class == FABRIC_NORMAL);
        assert_int_equal(tenant_specs_parse("a=5,class=latency,weight=2 b=6,weight=3,class=bulk c=7,class=normal",
                                            specs, &n, why),
                         0);
        assert_int_equal(n, 3);
        assert_true(specs[0].class == FABRIC_LATENCY && specs[0].weight == 2);
        assert_true(specs[1].class == FABRIC_BULK && specs[1].weight == 3);
        assert_true(specs[2].class == FABRIC_NORMAL && specs[2].weight == 1);
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                n = 7;
                if (tenant_specs_parse(wrong[i].text, specs, &n, why) != -EINVAL || !strstr(why, wrong[i].says))
                        fail_msg("'%s': says '%s', must say '%s'", wrong[i].text, why, wrong[i].says);
                assert_int_equal(n, 7);
        }
}

/* They may take rails that there are. */
static void test_rails(void **unused) {
        static const struct {
                const char *tenants, *rails, *says;
        } cases[] = {
                {"", "", NULL},
                {"a=5", "r0=10.0.0.1", NULL},
                {"a=5,rails=r1 b=6,rails=r0/r1", "r0=10.0.0.1 r1=10.0.0.2", NULL},
                {"a=5,rails=tcp0", "", NULL},
                {"a=5,rails=tcp0", "r0=10.0.0.1", "tenant a may take rail tcp0"},
                {"a=5,rails=r0", "", "tenant a may take rail r0"},
                {"a=5,rails=r0 b=6,rails=r0/r", "r0=10.0.0.1 r1=10.0.0.2", "tenant b may take rail r,"},
                {"a=5,rails=r0/r10", "r0=10.0.0.1 r1=10.0.0.2", "tenant a may take rail r10,"},
        };
        struct tenant_spec specs[TENANT_SPECS_MAX];
        char why[TENANTS_WHY_MAX];
        uint32_t n;

        (void)unused;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                int r = tenants_check_rails(cases[i].tenants, cases[i].rails, why);

                if (cases[i].says ? r != -EINVAL || !strstr(why, cases[i].says) : r != 0)
                        fail_msg("'%s' of '%s': %d, '%s'", cases[i].tenants, cases[i].rails, r, why);
        }
        assert_int_equal(tenant_specs_parse("a=5,rails=r0/r_1,weight=2 b=6", specs, &n, why), 0);
        assert_string_equal(specs[0].rails, "r0/r_1");
        assert_int_equal(specs[0].weight, 2);
        assert_string_equal(specs[1].rails, "");
        assert_true(rail_names_have(specs[0].rails, "r0") && rail_names_have(specs[0].rails, "r_1"));
        assert_false(rail_names_have(specs[0].rails, "r") || rail_names_have(specs[0].rails, "r_") ||
                     rail_names_have(specs[0].rails, "") || rail_names_have(specs[1].rails, "r0"));
}

static void test_choice(void **unused) {
        static const struct {
                uid_t uid;
                const char *name;
                uint32_t weight;
                enum fabric_class class;
        } cases[] = {{0, "default", 1, FABRIC_NORMAL}, {5, "blue", 1, FABRIC_LATENCY},
                     {6, "default", 1, FABRIC_NORMAL}, {7, "red", 3, FABRIC_NORMAL},
                     {9, "red", 3, FABRIC_NORMAL},     {10, "default", 1, FABRIC_NORMAL}};
        uint64_t limits[CHARGE_KIND_COUNT] = {[CHARGE_SESSIONS] = 2};
        struct manager manager = {0};
        struct tenant *tenant, *next;

        (void)unused;
        assert_int_equal(tenants_make(&manager, "blue=5,class=latency red=7-9,weight=3", limits), 0);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                tenant = tenant_choose(&manager, &(struct tenant_identity){.listener = "client", .uid = cases[i].uid});
                assert_string_equal(tenant->name, cases[i].name);
                assert_int_equal(tenant->weight, cases[i].weight);
                assert_int_equal(tenant->class, cases[i].class);
                assert_int_equal(tenant->account.limit[CHARGE_SESSIONS], 2);
        }
        /* Who was there before a restart keeps its tenant, unless it has gone. */
        tenant = tenant_choose(&manager, &(struct tenant_identity){.listener = "client", .kept = "blue", .uid = 8});
        assert_string_equal(tenant->name, "blue");
        tenant = tenant_choose(&manager, &(struct tenant_identity){.listener = "client", .kept = "green", .uid = 8});
        assert_string_equal(tenant->name, "red");
        DL_FOREACH_SAFE(manager.tenants, tenant, next) {
                DL_DELETE(manager.tenants, tenant);
                tenant_free(tenant);
        }
}

/* However many tenants there are, all together hold what there is; and by default each has a share of it. */
static void test_room(void **unused) {
        uint64_t limits[CHARGE_KIND_COUNT] = {[CHARGE_FDS] = 5000, [CHARGE_BYTES] = UINT64_MAX, [CHARGE_COMMS] = 7};
        struct charge taken[3] = {CHARGE_INIT, CHARGE_INIT, CHARGE_INIT};
        struct manager manager = {0};
        struct tenant *tenant, *next;
        uint64_t room = tenants_room_fds();
        char text[160];

        (void)unused;
        assert_true(room >= 64 && room <= 5000);
        assert_int_equal(tenants_make(&manager, "blue=5 red=7", limits), 0);
        assert_int_equal(manager.whole.limit[CHARGE_FDS], room);
        assert_int_equal(manager.whole.limit[CHARGE_BYTES], UINT64_MAX);
        assert_int_equal(manager.whole.limit[CHARGE_COMMS], UINT64_MAX);
        tenant = tenant_find(&manager, "blue");
        assert_int_equal(tenant_charge(tenant, &taken[0], CHARGE_FDS, room - 1, text, sizeof(text)), 0);
        tenant = tenant_find(&manager, "red");
        assert_int_equal(tenant_charge(tenant, &taken[1], CHARGE_FDS, 2, text, sizeof(text)), TENANT_E_LIMIT);
        assert_non_null(strstr(text, "tenant red: all tenants together hold the"));
        assert_int_equal(tenant_charge(tenant, &taken[1], CHARGE_FDS, 1, text, sizeof(text)), 0);
        /* What a predecessor left is taken whatever it is. */
        tenants_set_unlimited(&manager);
        assert_int_equal(tenant_charge(tenant, &taken[2], CHARGE_FDS, room, text, sizeof(text)), 0);
        limits[CHARGE_BYTES] = 1;
        tenants_set_limits(&manager, limits);
        assert_int_equal(manager.whole.limit[CHARGE_BYTES], tenants_room_bytes());
        assert_int_equal(tenant->account.limit[CHARGE_FDS], 5000);
        charge_release(&taken[0]);
        assert_int_equal(tenant_charge(tenant, &taken[0], CHARGE_FDS, 1, text, sizeof(text)), TENANT_E_LIMIT);
        charge_release(&taken[2]);
        assert_int_equal(tenant_charge(tenant, &taken[0], CHARGE_FDS, 1, text, sizeof(text)), 0);
        charge_release(&taken[0]);
        charge_release(&taken[1]);
        /* One that a predecessor had, too. */
        assert_int_equal(tenants_keep(&manager, "green", limits), 0);
        assert_ptr_equal(tenant_find(&manager, "green")->account.whole, &manager.whole);
        /* What is not configured is a share, and that one has none. */
        limits[CHARGE_FDS] = limits[CHARGE_BYTES] = 0;
        tenants_set_limits(&manager, limits);
        DL_FOREACH(manager.tenants, tenant) {
                assert_int_equal(tenant->account.limit[CHARGE_FDS], tenants_share_fds(3));
                assert_int_equal(tenant->account.limit[CHARGE_BYTES], tenants_share_bytes(3));
                assert_int_equal(tenant->account.limit[CHARGE_COMMS], 7);
        }
        for (uint32_t n = 1; n <= TENANT_SPECS_MAX + 1; n++) {
                assert_true(tenants_share_fds(n) >= 16 && tenants_share_fds(n) <= 4096);
                assert_true(n * tenants_share_fds(n) <= room || tenants_share_fds(n) == 16);
                assert_true(n * tenants_share_bytes(n) <= tenants_room_bytes() || tenants_share_bytes(n) == 1u << 30);
        }
        DL_FOREACH_SAFE(manager.tenants, tenant, next) {
                DL_DELETE(manager.tenants, tenant);
                tenant_free(tenant);
        }
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
                cmocka_unit_test(test_closing),
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_specs),
                cmocka_unit_test(test_rails),
                cmocka_unit_test(test_choice),
                cmocka_unit_test(test_room),
                cmocka_unit_test(test_waiting_calls),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
