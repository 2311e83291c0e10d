/* SPDX-License-Identifier: MIT */
#include "daemon/rails.h"

#include "daemon/peer_address.h"
#include "util/parse.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

_Static_assert(sizeof(((struct rail_spec *)0)->device) == IFNAMSIZ, "names of interfaces fit");

#define RAIL_OPTIONS                                                                                                   \
        "port=, advertise=, device=, rate=, window=, dscp=, kind=, hca=, timeout=, retries= and udp_port= behind the " \
        "address"

static int rail_wrong(char why[RAILS_WHY_MAX], const char *part, const char *right) {
        snprintf(why, RAILS_WHY_MAX, "'%.60s' is wrong in a rail; allowed: %s", part, right);
        return -EINVAL;
}

static bool rail_name_right(const char *name) {
        size_t n = strlen(name);

        for (const char *c = name; *c; c++)
                if (!isalnum((unsigned char)*c) && *c != '.' && *c != '_' && *c != '-')
                        return false;
        return n >= 1 && n <= RAILS_NAME_MAX;
}

/* Numeric; of a link-local one the interface is behind a '%', and is looked up when the rail is made. */
static bool rail_address_right(const char *address) {
        char plain[sizeof(((struct rail_spec *)0)->address)];
        unsigned char binary[sizeof(struct in6_addr)];

        if (strlen(address) >= sizeof(plain))
                return false;
        snprintf(plain, sizeof(plain), "%.*s", (int)strcspn(address, "%"), address);
        return inet_pton(AF_INET, plain, binary) == 1 || inet_pton(AF_INET6, plain, binary) == 1;
}

/* An address that others can connect to; "ADDRESS:PORT". */
static bool rail_advertise_right(const char *text, char host[PEER_ADDRESS_MAX], uint16_t *ret_port) {
        struct sockaddr_storage address;
        int size;

        return peer_address_split(text, host, ret_port) == 0 && *ret_port && rail_address_right(host) &&
               !(peer_address_parse(text, &address, &size) == 0 &&
                 peer_address_is_wildcard((const struct sockaddr *)&address));
}

/* A number from least to most, or 0 .. most. */
static int rail_number(const char *value, uint64_t least, uint64_t most, const char *what, uint64_t *ret_number,
                       char why[RAILS_WHY_MAX]) {
        char right[80];

        if (parse_u64(value, ret_number) == 0 && *ret_number >= least && *ret_number <= most)
                return 0;
        snprintf(right, sizeof(right), "%s, %" PRIu64 " .. %" PRIu64, what, least, most);
        return rail_wrong(why, value, right);
}

/* Those of RDMA. -ENOENT: none of them. */
static int rail_verbs_option(struct rail_spec *spec, const char *name, const char *value, char why[RAILS_WHY_MAX]) {
        uint64_t number = 0;
        int r = 0;

        if (strcmp(name, "kind") == 0) {
                if (strcmp(value, "tcp") != 0 && strcmp(value, "verbs") != 0)
                        return rail_wrong(why, value, "tcp or verbs");
                spec->verbs = value[0] == 'v';
        } else if (strcmp(name, "hca") == 0) {
                if (!*value || *value == ':' || strlen(value) >= sizeof(spec->hca))
                        return rail_wrong(why, value, "the name of an RDMA device, with :PORT behind it if you like");
                snprintf(spec->hca, sizeof(spec->hca), "%s", value);
        } else if (strcmp(name, "timeout") == 0) {
                r = rail_number(value, 1, 31, "a timeout of queue pairs", &number, why);
                spec->timeout = (uint8_t)number;
        } else if (strcmp(name, "retries") == 0) {
                r = rail_number(value, 1, 7, "a number of retries", &number, why);
                spec->retries = (uint8_t)number;
        } else if (strcmp(name, "udp_port") == 0) {
                r = rail_number(value, 0xc001, 0xffff, "a UDP port", &number, why);
                spec->udp_port = (uint16_t)number;
        } else {
                return -ENOENT;
        }
        return r;
}

/* One for all classes, or one for each. */
static int rail_dscp(struct rail_spec *spec, const char *value, char why[RAILS_WHY_MAX]) {
        char copy[sizeof("63/63/63")], *next = copy;
        uint64_t marks[FABRIC_N_CLASSES];
        uint32_t n = 0;
        bool right = strlen(value) < sizeof(copy);

        snprintf(copy, sizeof(copy), "%s", value);
        while (right && next) {
                char *part = next;

                next = strchr(part, '/');
                if (next)
                        *next++ = 0;
                right = n < FABRIC_N_CLASSES && parse_u64(part, &marks[n]) == 0 && marks[n] <= 63;
                n++;
        }
        if (!right || (n != 1 && n != FABRIC_N_CLASSES))
                return rail_wrong(why, value,
                                  "a DSCP, 0 .. 63, or three with '/' between, of latency, normal and bulk");
        for (uint32_t class = 0; class < FABRIC_N_CLASSES; class ++)
                spec->dscp[class] = (uint8_t)marks[n == 1 ? 0 : class];
        return 0;
}

static int rail_option(struct rail_spec *spec, char *text, char why[RAILS_WHY_MAX]) {
        char *value = strchr(text, '=');
        uint64_t number;
        int r;

        if (!value)
                return rail_wrong(why, text, RAIL_OPTIONS);
        *value++ = 0;
        if (strcmp(text, "device") == 0) {
                if (!*value || strlen(value) >= sizeof(spec->device))
                        return rail_wrong(why, value, "the name of an interface");
                snprintf(spec->device, sizeof(spec->device), "%s", value);
        } else if (strcmp(text, "advertise") == 0) {
                char host[PEER_ADDRESS_MAX];

                if (!rail_advertise_right(value, host, &spec->advertise_port))
                        return rail_wrong(why, value, "ADDRESS:PORT, a numeric address of one machine with a port");
                snprintf(spec->advertise, sizeof(spec->advertise), "%.63s", host);
        } else if (strcmp(text, "port") == 0) {
                if (parse_u64(value, &number) < 0 || number > 65535)
                        return rail_wrong(why, value, "a port, 0 .. 65535");
                spec->port = (uint16_t)number;
        } else if (strcmp(text, "dscp") == 0) {
                return rail_dscp(spec, value, why);
        } else if (strcmp(text, "rate") == 0 || strcmp(text, "window") == 0) {
                if (parse_size(value, &number) < 0 || number == 0)
                        return rail_wrong(why, value, "a number of bytes, with K, M or G behind it if you like");
                *(text[0] == 'r' ? &spec->rate_bytes : &spec->window_bytes) = number;
        } else {
                r = rail_verbs_option(spec, text, value, why);
                return r == -ENOENT ? rail_wrong(why, text, RAIL_OPTIONS) : r;
        }
        return 0;
}

int rail_spec_parse(const char *text, struct rail_spec *ret_spec, char why[RAILS_WHY_MAX]) {
        struct rail_spec spec = {.port = 0};
        char copy[256], *address, *save, *part;
        int r;

        if (strlen(text) >= sizeof(copy))
                return rail_wrong(why, text, "at most 255 characters");
        snprintf(copy, sizeof(copy), "%s", text);
        address = strchr(copy, '=');
        if (!address)
                return rail_wrong(why, text, "NAME=ADDRESS");
        *address++ = 0;
        if (!rail_name_right(copy))
                return rail_wrong(why, copy, "a name of 1 to 31 letters, digits, '.', '_' and '-'");
        snprintf(spec.name, sizeof(spec.name), "%.31s", copy);
        address = strtok_r(address, ",", &save);
        if (!address || !rail_address_right(address))
                return rail_wrong(why, address ? address : text, "a numeric address of this node");
        snprintf(spec.address, sizeof(spec.address), "%s", address);
        for (part = strtok_r(NULL, ",", &save); part; part = strtok_r(NULL, ",", &save)) {
                r = rail_option(&spec, part, why);
                if (r)
                        return r;
        }
        if (!spec.verbs && (spec.hca[0] || spec.timeout || spec.retries || spec.udp_port))
                return rail_wrong(why, text, "hca=, timeout=, retries= and udp_port= with kind=verbs only");
        if (spec.advertise[0] && !spec.port)
                return rail_wrong(why, text, "advertise= beside port= only: what others connect to leads to one port");
        if (spec.advertise[0] && !strchr(spec.advertise, ':') != !strchr(spec.address, ':'))
                return rail_wrong(why, text, "advertise= with IPv4 or IPv6 as the rail's own address has it");
        *ret_spec = spec;
        return 0;
}

int rail_specs_parse(const char *text, struct rail_spec specs[RAILS_MAX], uint32_t *ret_n, char why[RAILS_WHY_MAX]) {
        uint32_t n = 0;

        while (*(text += strspn(text, " \t\n"))) {
                size_t length = strcspn(text, " \t\n");
                char one[256];
                int r;

                if (length >= sizeof(one))
                        return rail_wrong(why, text, "at most 255 characters for each");
                if (n == RAILS_MAX)
                        return rail_wrong(why, text, "at most 16 rails");
                snprintf(one, sizeof(one), "%.*s", (int)length, text);
                r = rail_spec_parse(one, &specs[n], why);
                if (r)
                        return r;
                for (uint32_t i = 0; i < n; i++)
                        if (strcmp(specs[i].name, specs[n].name) == 0)
                                return rail_wrong(why, one, "a name that no other rail has");
                n++;
                text += length;
        }
        *ret_n = n;
        return 0;
}

bool rail_names_have(const char *names, const char *name) {
        const size_t length = strlen(name);

        for (const char *at = names; *at; at += strcspn(at, "/"), at += *at == '/')
                if (strcspn(at, "/") == length && strncmp(at, name, length) == 0)
                        return true;
        return false;
}

bool rail_names_right(const char *names) {
        const char *at = names;

        for (;;) {
                char name[RAILS_NAME_MAX + 2];
                size_t length = strcspn(at, "/");

                snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : sizeof(name) - 1), at);
                if (!rail_name_right(name))
                        return false;
                if (!at[length])
                        return true;
                at += length + 1;
        }
}
