/* SPDX-License-Identifier: MIT */
/*
 * ncclConfig_t has grown with the versions, and a program brings the one that it was compiled with: its first member is
 * the size of it. So members count as given up to that size only, and up to the version that the struct names, since
 * some came to stand where the version before had padding. What lies behind our own end is not looked at: one vendor
 * has a pointer there and others numbers.
 *
 *   bytes  24    48    72    80    88                 96    more
 *   of     2.14  2.18  2.27  2.28  an RCCL of 2.28    2.30  later
 *
 * Members that tune what the daemon decides are checked and then ignored. maxCTAs is not among them: how much of the
 * GPU is left to other kernels is the program's business.
 */
#include "client/nccl/config.h"

#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/nccl/error.h"

#define SIZE_FIRST 24u /* size, magic, version, blocking, padding */
#define SIZE_MOST  65536u

#define TIMEOUT_MOST 4000000.0 /* seconds, which fit as milliseconds */

_Static_assert(sizeof(ncclConfig_t) == 80, "the layout of 2.28");
_Static_assert(offsetof(ncclConfig_t, netName) == 32 && offsetof(ncclConfig_t, commName) == 48, "the layout of 2.28");

/* With a point, also in a program whose language has a comma there. */
static double number_read(const char *text, char **ret_end) {
        locale_t c = newlocale(LC_NUMERIC_MASK, "C", NULL);
        double number = c ? strtod_l(text, ret_end, c) : strtod(text, ret_end);

        if (c)
                freelocale(c);
        return number;
}

/* Seconds, also parts of them. What is no such number, or none that ends, is as if it were not there. */
uint32_t config_timeout_ms(void) {
        const char *text = getenv("RAILMUX_JOIN_TIMEOUT");
        double seconds;
        char *end;

        if (!text || !*text)
                return 0;
        seconds = number_read(text, &end);
        if (*end || !(seconds > 0) || seconds > TIMEOUT_MOST)
                return 0;
        return seconds < 0.001 ? 1 : (uint32_t)(seconds * 1000);
}

/* What the environment says of blocks, above what programs say; 0: nothing, or what is no such number. */
static uint32_t max_blocks_given(void) {
        const char *text = getenv("NCCL_MAX_CTAS");
        char *end;
        long n;

        if (!text || !*text)
                return 0;
        n = strtol(text, &end, 10);
        return *end || n < 1 || n > INT_MAX ? 0 : (uint32_t)n;
}

/* The same of waiting: 0 or 1; -1: nothing, or what is neither. */
static int blocking_given(void) {
        const char *text = getenv("NCCL_COMM_BLOCKING");

        return !text || (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) ? -1 : *text - '0';
}

struct config config_default(void) {
        return (struct config){.blocking = blocking_given() != 0, .max_blocks = max_blocks_given()};
}

static const ncclConfig_t undefined = NCCL_CONFIG_INITIALIZER;

/* A copy in our layout, with everything undefined that the program does not know. */
static void copy(const ncclConfig_t *given, ncclConfig_t *ret_config) {
        *ret_config = undefined;
        memcpy(ret_config, given, given->size < sizeof(*ret_config) ? given->size : sizeof(*ret_config));
        if (ret_config->version < NCCL_VERSION(2, 17, 0)) {
                ret_config->cgaClusterSize = ret_config->minCTAs = ret_config->maxCTAs = NCCL_CONFIG_UNDEF_INT;
                ret_config->netName = NCCL_CONFIG_UNDEF_PTR;
        }
        if (ret_config->version < NCCL_VERSION(2, 18, 0))
                ret_config->splitShare = NCCL_CONFIG_UNDEF_INT;
        if (ret_config->version < NCCL_VERSION(2, 26, 0))
                ret_config->trafficClass = NCCL_CONFIG_UNDEF_INT;
        if (ret_config->version < NCCL_VERSION(2, 27, 0)) {
                ret_config->commName = NCCL_CONFIG_UNDEF_PTR;
                ret_config->collnetEnable = ret_config->CTAPolicy = NCCL_CONFIG_UNDEF_INT;
                ret_config->shrinkShare = ret_config->nvlsCTAs = NCCL_CONFIG_UNDEF_INT;
        }
        if (ret_config->version < NCCL_VERSION(2, 28, 0))
                ret_config->nChannelsPerNetPeer = ret_config->nvlinkCentricSched = NCCL_CONFIG_UNDEF_INT;
}

static ncclResult_t check(const char *what, const char *name, int value, int least, int most) {
        if (value == NCCL_CONFIG_UNDEF_INT || (value >= least && value <= most))
                return ncclSuccess;
        return error_raise(ncclInvalidArgument, "%s: config.%s is %d, must be %d..%d", what, name, value, least, most);
}

static ncclResult_t check_all(const char *what, const ncclConfig_t *c) {
        const struct {
                const char *name;
                int value, least, most;
        } rules[] = {
                {"blocking", c->blocking, 0, 1},
                {"cgaClusterSize", c->cgaClusterSize, 0, 8},
                {"minCTAs", c->minCTAs, 1, INT_MAX},
                {"maxCTAs", c->maxCTAs, 1, INT_MAX},
                {"splitShare", c->splitShare, 0, 1},
                {"collnetEnable", c->collnetEnable, 0, 1},
                {"CTAPolicy", c->CTAPolicy, 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO},
                {"shrinkShare", c->shrinkShare, 0, 1},
                {"nvlsCTAs", c->nvlsCTAs, 1, INT_MAX},
                {"nChannelsPerNetPeer", c->nChannelsPerNetPeer, 1, INT_MAX},
                {"nvlinkCentricSched", c->nvlinkCentricSched, 0, 1},
        };
        ncclResult_t result = ncclSuccess;

        for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && !result; i++)
                result = check(what, rules[i].name, rules[i].value, rules[i].least, rules[i].most);
        if (!result && c->minCTAs != NCCL_CONFIG_UNDEF_INT && c->maxCTAs != NCCL_CONFIG_UNDEF_INT &&
            c->minCTAs > c->maxCTAs)
                result = error_raise(ncclInvalidArgument, "%s: config.minCTAs %d is above maxCTAs %d", what, c->minCTAs,
                                     c->maxCTAs);
        return result;
}

ncclResult_t config_read(const char *what, const ncclConfig_t *given, struct config defaults,
                         struct config *ret_config) {
        ncclConfig_t config;
        ncclResult_t result;

        *ret_config = defaults;
        if (!given)
                return ncclSuccess;
        if (given->size < SIZE_FIRST || given->size > SIZE_MOST || given->magic != NCCL_API_MAGIC)
                return error_raise(ncclInvalidArgument,
                                   "%s: config is not initialised with NCCL_CONFIG_INITIALIZER (size %zu, magic 0x%x)",
                                   what, given->size, given->magic);
        copy(given, &config);
        result = check_all(what, &config);
        if (result)
                return result;
        if (config.blocking != NCCL_CONFIG_UNDEF_INT && blocking_given() < 0)
                ret_config->blocking = config.blocking;
        if (config.maxCTAs != NCCL_CONFIG_UNDEF_INT && !max_blocks_given())
                ret_config->max_blocks = (uint32_t)config.maxCTAs;
        if (config.commName)
                snprintf(ret_config->name, sizeof(ret_config->name), "%.63s", config.commName);
        return ncclSuccess;
}
