/* SPDX-License-Identifier: MIT */
/* Rails as people write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cluster_rails.h"
#include "daemon/manager.h"
#include "daemon/rails.h"

static void right(void **state) {
        struct rail_spec spec;
        char why[RAILS_WHY_MAX];

        (void)state;
        memset(&spec, 0x5a, sizeof(spec));
        assert_int_equal(rail_spec_parse("rail0=10.0.0.1", &spec, why), 0);
        assert_string_equal(spec.name, "rail0");
        assert_string_equal(spec.address, "10.0.0.1");
        assert_string_equal(spec.device, "");
        assert_int_equal(spec.port, 0);
        assert_int_equal(spec.rate_bytes, 0);
        assert_int_equal(spec.window_bytes, 0);
        assert_int_equal(spec.dscp[FABRIC_LATENCY] + spec.dscp[FABRIC_NORMAL] + spec.dscp[FABRIC_BULK], 0);
        assert_int_equal(
                rail_spec_parse("a.b_c-1=fd00::7,port=7601,device=eth2,rate=1G,window=64K,dscp=26", &spec, why), 0);
        assert_string_equal(spec.name, "a.b_c-1");
        assert_string_equal(spec.address, "fd00::7");
        assert_string_equal(spec.device, "eth2");
        assert_int_equal(spec.port, 7601);
        assert_int_equal(spec.rate_bytes, 1u << 30);
        assert_int_equal(spec.window_bytes, 64u << 10);
        for (uint32_t class = 0; class < FABRIC_N_CLASSES; class ++)
                assert_int_equal(spec.dscp[class], 26);
        assert_false(spec.verbs);
        assert_string_equal(spec.advertise, "");
        assert_int_equal(rail_spec_parse("r=10.0.0.1,kind=tcp,advertise=192.0.2.7:7601,port=7", &spec, why), 0);
        assert_false(spec.verbs);
        assert_string_equal(spec.advertise, "192.0.2.7");
        assert_int_equal(spec.advertise_port, 7601);
        assert_int_equal(rail_spec_parse("r=::1,port=7601,advertise=[fd00::7]:1", &spec, why), 0);
        assert_string_equal(spec.advertise, "fd00::7");
        assert_int_equal(rail_spec_parse("r=10.0.0.1,kind=verbs", &spec, why), 0);
        assert_true(spec.verbs);
        assert_string_equal(spec.hca, "");
        assert_int_equal(spec.timeout + spec.retries + spec.udp_port, 0);
        assert_int_equal(
                rail_spec_parse("r=10.0.0.1,hca=mlx5_0:1,timeout=31,retries=7,udp_port=49153,kind=verbs", &spec, why),
                0);
        assert_true(spec.verbs);
        assert_string_equal(spec.hca, "mlx5_0:1");
        assert_int_equal(spec.timeout, 31);
        assert_int_equal(spec.retries, 7);
        assert_int_equal(spec.udp_port, 49153);
        assert_int_equal(rail_spec_parse("l=fe80::1%eth0", &spec, why), 0);
        assert_string_equal(spec.address, "fe80::1%eth0");
        assert_int_equal(rail_spec_parse("abcdefghijklmnopqrstuvwxyz01234=::1,port=65535,dscp=63", &spec, why), 0);
        assert_int_equal(rail_spec_parse("r=::1,dscp=46/26/0", &spec, why), 0);
        assert_int_equal(spec.dscp[FABRIC_LATENCY], 46);
        assert_int_equal(spec.dscp[FABRIC_NORMAL], 26);
        assert_int_equal(spec.dscp[FABRIC_BULK], 0);
        assert_int_equal(rail_spec_parse("r=::1,dscp=63/63/63,rate=1G", &spec, why), 0);
        assert_int_equal(spec.dscp[FABRIC_BULK], 63);
}

static void wrong(void **state) {
        static const struct {
                const char *text, *says;
        } cases[] = {
                {"", "NAME=ADDRESS"},
                {"rail0", "NAME=ADDRESS"},
                {"=10.0.0.1", "a name of"},
                {"a b=10.0.0.1", "a name of"},
                {"abcdefghijklmnopqrstuvwxyz012345=::1", "a name of"},
                {"r=", "numeric address"},
                {"r=,port=1", "numeric address"},
                {"r=node7", "numeric address"},
                {"r=10.0.0.256", "numeric address"},
                {"r=10.0.0.1:7600", "numeric address"},
                {"r=[::1]", "numeric address"},
                {"r=::1,", NULL},
                {"r=::1,advertise=", "ADDRESS:PORT"},
                {"r=::1,advertise=10.0.0.1", "ADDRESS:PORT"},
                {"r=::1,advertise=10.0.0.1:0", "ADDRESS:PORT"},
                {"r=::1,advertise=node7:1", "ADDRESS:PORT"},
                {"r=::1,advertise=fd00::7:1", "ADDRESS:PORT"},
                {"r=::1,port=1,advertise=[::]:1", "ADDRESS:PORT"},
                {"r=10.0.0.1,port=1,advertise=0.0.0.0:1", "ADDRESS:PORT"},
                {"r=10.0.0.1,advertise=10.0.0.2:1", "beside port="},
                {"r=10.0.0.1,port=0,advertise=10.0.0.2:1", "beside port="},
                {"r=10.0.0.1,port=1,advertise=[fd00::7]:1", "IPv4 or IPv6"},
                {"r=fd00::7,port=1,advertise=10.0.0.1:1", "IPv4 or IPv6"},
                {"r=::1,port", "port="},
                {"r=::1,port=", "65535"},
                {"r=::1,port=65536", "65535"},
                {"r=::1,port=-1", "65535"},
                {"r=::1,dscp=64", "63"},
                {"r=::1,dscp=", "63"},
                {"r=::1,dscp=46/26", "three"},
                {"r=::1,dscp=46/26/", "three"},
                {"r=::1,dscp=/46/26", "three"},
                {"r=::1,dscp=46/26/64", "three"},
                {"r=::1,dscp=1/2/3/4", "three"},
                {"r=::1,dscp=46//26/10/", "three"},
                {"r=::1,rate=0", "number of bytes"},
                {"r=::1,rate=fast", "number of bytes"},
                {"r=::1,window=", "number of bytes"},
                {"r=::1,device=", "interface"},
                {"r=::1,device=abcdefghijklmnop", "interface"},
                {"r=::1,speed=1", "port="},
                {"r=::1,kind=rdma", "tcp or verbs"},
                {"r=::1,kind=verbs,hca=", "RDMA device"},
                {"r=::1,kind=verbs,timeout=0", "1 .. 31"},
                {"r=::1,kind=verbs,timeout=32", "1 .. 31"},
                {"r=::1,kind=verbs,retries=8", "1 .. 7"},
                {"r=::1,kind=verbs,udp_port=4791", "49153 .. 65535"},
                {"r=::1,hca=mlx5_0", "kind=verbs"},
                {"r=::1,kind=tcp,retries=3", "kind=verbs"},
        };
        char why[RAILS_WHY_MAX];

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct rail_spec spec, before;

                memset(&spec, 0x5a, sizeof(spec));
                before = spec;
                memset(why, 0, sizeof(why));
                if (!cases[i].says) {
                        assert_int_equal(rail_spec_parse(cases[i].text, &spec, why), 0);
                        continue;
                }
                if (rail_spec_parse(cases[i].text, &spec, why) != -EINVAL || !strstr(why, cases[i].says))
                        fail_msg("'%s': says '%s', must say '%s'", cases[i].text, why, cases[i].says);
                assert_memory_equal(&spec, &before, sizeof(spec));
        }
}

static void several(void **state) {
        struct rail_spec specs[RAILS_MAX];
        char why[RAILS_WHY_MAX], text[1024] = "";
        uint32_t n = 99;

        (void)state;
        assert_int_equal(rail_specs_parse("", specs, &n, why), 0);
        assert_int_equal(n, 0);
        assert_int_equal(rail_specs_parse("  r0=10.0.0.1,port=1\n\tr1=10.0.1.1 ", specs, &n, why), 0);
        assert_int_equal(n, 2);
        assert_string_equal(specs[0].address, "10.0.0.1");
        assert_string_equal(specs[1].name, "r1");
        assert_int_equal(rail_specs_parse("r0=10.0.0.1 r0=10.0.1.1", specs, &n, why), -EINVAL);
        assert_non_null(strstr(why, "no other rail"));
        assert_int_equal(rail_specs_parse("r0=10.0.0.1 r1", specs, &n, why), -EINVAL);
        for (uint32_t i = 0; i <= RAILS_MAX; i++) {
                char one[32];

                snprintf(one, sizeof(one), "r%u=10.0.%u.1 ", i, i);
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", one);
                n = 99;
                assert_int_equal(rail_specs_parse(text, specs, &n, why), i < RAILS_MAX ? 0 : -EINVAL);
                assert_int_equal(n, i < RAILS_MAX ? i + 1 : 99);
        }
        assert_non_null(strstr(why, "at most 16"));
        memset(text, 'a', 300);
        text[300] = 0;
        assert_int_equal(rail_specs_parse(text, specs, &n, why), -EINVAL);
        assert_non_null(strstr(why, "255"));
}

/* Every rail is some GPU's, with all its ranks, and what is said of it is what is done. */
static void gpus(void **state) {
        static struct manager manager;
        char names[16][CLUSTER_RAIL_NAME];
        struct cluster cluster = {.manager = &manager, .rails = names};

        (void)state;
        for (uint32_t i = 0; i < 16; i++)
                snprintf(names[i], sizeof(names[i]), "r%u", i);
        manager.n_gpus = 1;
        assert_null(cluster_rail_of_gpu(&cluster, 0, 0, 0));
        for (uint32_t n = 1; n <= 16; n++) {
                for (uint32_t n_gpus = 1; n_gpus <= 16; n_gpus++) {
                        bool taken[16] = {false};

                        cluster.n_rails = n;
                        manager.n_gpus = n_gpus;
                        for (uint32_t gpu = 0; gpu < n_gpus; gpu++) {
                                assert_string_equal(cluster_rail_of_gpu(&cluster, 0, gpu, 0), names[gpu % n]);
                                for (uint32_t before = 0; before < 16; before++) {
                                        const char *rail = cluster_rail_of_gpu(&cluster, 0, gpu, before);

                                        assert_true(cluster_rail_serves(&cluster, rail, gpu));
                                        taken[strtoul(rail + 1, NULL, 10)] = true;
                                }
                        }
                        for (uint32_t i = 0; i < n; i++)
                                assert_true(taken[i]);
                }
        }
}

/* A GPU's own ones, if any may be taken, and of the others each in turn. */
static void gpus_only(void **state) {
        static struct manager manager = {.n_gpus = 4};
        char names[8][CLUSTER_RAIL_NAME] = {"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"};
        static const char *const of_eight[] = {"r0", "r0", "r2", "r2", "r4", "r4", "r6", "r6"};
        struct cluster cluster = {.manager = &manager, .rails = names, .n_rails = 4};
        const uint32_t only = cluster_rails_only(&cluster, "r3/r1");

        (void)state;
        assert_int_equal(only, 1u << 1 | 1u << 3);
        assert_int_equal(cluster_rails_only(&cluster, ""), 0);
        assert_string_equal(cluster_rail_of_gpu(&cluster, only, 0, 0), "r1");
        assert_string_equal(cluster_rail_of_gpu(&cluster, only, 1, 0), "r1");
        assert_string_equal(cluster_rail_of_gpu(&cluster, only, 2, 0), "r3");
        assert_string_equal(cluster_rail_of_gpu(&cluster, only, 3, 0), "r3");
        manager.n_gpus = 1;
        for (uint32_t before = 0; before < 4; before++) /* all are its */
                assert_string_equal(cluster_rail_of_gpu(&cluster, only, 0, before), before % 2 ? "r3" : "r1");
        cluster.n_rails = manager.n_gpus = 8;
        for (uint32_t gpu = 0; gpu < 8; gpu++)
                assert_string_equal(cluster_rail_of_gpu(&cluster, cluster_rails_only(&cluster, "r0/r2/r4/r6"), gpu, 0),
                                    of_eight[gpu]);
        manager.n_gpus = 2; /* r1, r3, r5 and r7 are those of GPU 1 */
        for (uint32_t before = 0; before < 4; before++)
                assert_string_equal(cluster_rail_of_gpu(&cluster, cluster_rails_only(&cluster, "r0/r4"), 1, before),
                                    before % 2 ? "r4" : "r0");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(right), cmocka_unit_test(wrong),     cmocka_unit_test(several),
                cmocka_unit_test(gpus),  cmocka_unit_test(gpus_only),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
