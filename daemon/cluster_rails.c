/* SPDX-License-Identifier: MIT */
/*
 * Rails that cannot be opened
 *
 * A daemon that runs bears that a link goes down and takes its address along. One that is started in the place of
 * another has to bear as much, or what is wrong with one rail would end sessions that do not even use it, since nobody
 * would adopt them. So such a rail waits, and is tried again; peers are told of it when it has come. When a node is
 * started for the first time there is nothing to lose, and the address is more likely to be mistyped than to be on its
 * way: then it is an error. What cannot be right on any machine always is.
 *
 * Opening is done in the loop, as at the start. It takes a few system calls; of an adapter it may be milliseconds.
 */
#include "daemon/cluster_rails.h"

#include "daemon/config.h"
#include "daemon/manager.h"
#include "daemon/peer_address.h"
#include "daemon/state.h"
#include "util/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#define RAIL_AGAIN_S 5

static const struct timeval rail_again_time = {.tv_sec = RAIL_AGAIN_S};

_Static_assert(STATE_DRAINED >= FABRIC_RAILS_MAX && STATE_RAIL_BYTES > FABRIC_NAME_MAX, "there is room for all rails");

const struct cluster_rail *cluster_rail_waiting(const struct cluster *cluster, const char *name) {
        const struct cluster_rail *rail;

        DL_FOREACH(cluster->waiting, rail) {
                if (strcmp(rail->spec.name, name) == 0)
                        return rail;
        }
        return NULL;
}

/* As an operator has told this process, or the one before it. */
static bool rail_is_drained(const struct cluster *cluster, const char *name) {
        for (uint32_t i = 0; i < STATE_DRAINED; i++) {
                const char *drained = state_drained_rail(cluster->manager->state, i);

                if (drained && strcmp(drained, name) == 0)
                        return true;
        }
        return false;
}

/* As fabric_rail_add(), with a text that does not name the rail. */
static int rail_open(struct cluster *cluster, const struct rail_spec *spec, char why[CLUSTER_TEXT_MAX]) {
        struct fabric_rail_options options = {.name = spec->name,
                                              .kind = spec->verbs ? "verbs" : "tcp",
                                              .hca = spec->hca[0] ? spec->hca : NULL,
                                              .timeout = spec->timeout,
                                              .retries = spec->retries,
                                              .udp_port = spec->udp_port,
                                              .address = spec->address,
                                              .port = spec->port,
                                              .advertise = spec->advertise[0] ? spec->advertise : NULL,
                                              .advertise_port = spec->advertise_port,
                                              .device = spec->device[0] ? spec->device : NULL,
                                              .window_bytes = spec->window_bytes,
                                              .rate_bytes = spec->rate_bytes,
                                              .drained = rail_is_drained(cluster, spec->name)};
        char prefix[sizeof("rail : ") + RAILS_NAME_MAX];
        const char *text;
        int r;

        memcpy(options.dscp, spec->dscp, sizeof(options.dscp));
        while (options.number + 1u < cluster->n_rails && strcmp(cluster->rails[options.number], spec->name) != 0)
                options.number++;
        r = fabric_rail_add(cluster->fabric, &options);
        if (r) {
                text = r < 0 ? strerror(-r) : fabric_error(cluster->fabric);
                snprintf(prefix, sizeof(prefix), "rail %s: ", spec->name);
                if (strncmp(text, prefix, strlen(prefix)) == 0)
                        text += strlen(prefix);
                snprintf(why, CLUSTER_TEXT_MAX, "%s", text);
        } else if (options.drained) {
                log_notice("rail %s is drained as before; railmuxctl undrain-rail takes that back", spec->name);
        }
        return r;
}

static int rail_wait(struct cluster *cluster, const struct rail_spec *spec, const char *why) {
        struct cluster_rail *rail = calloc(1, sizeof(*rail));

        if (!rail)
                return -ENOMEM;
        rail->spec = *spec;
        snprintf(rail->why, sizeof(rail->why), "%s", why);
        DL_APPEND(cluster->waiting, rail);
        log_error("rail %s: %s. This node starts without it, and tries it again every %d seconds", spec->name, why,
                  RAIL_AGAIN_S);
        return event_add(cluster->rails_event, &rail_again_time) < 0 ? -ENOMEM : 0;
}

static void rails_try_again(evutil_socket_t fd, short what, void *data) {
        struct cluster *cluster = data;
        struct cluster_rail *rail, *tmp;
        bool changed = false;
        LOOP_HOLD(&cluster->manager->watch, "rails that could not be opened");

        (void)fd;
        (void)what;
        DL_FOREACH_SAFE(cluster->waiting, rail, tmp) {
                char why[CLUSTER_TEXT_MAX];
                int r = rail_open(cluster, &rail->spec, why);

                if (r == 0) {
                        log_notice("rail %s is there now", rail->spec.name);
                        DL_DELETE(cluster->waiting, rail);
                        free(rail);
                        changed = true;
                } else if (r != FABRIC_E_ARGUMENT && strcmp(why, rail->why) != 0) { /* areas pass, and come again */
                        log_error("rail %s: %s", rail->spec.name, why);
                        snprintf(rail->why, sizeof(rail->why), "%s", why);
                }
        }
        if (changed)
                cluster_rails_changed(cluster);
        if (!cluster->waiting)
                event_del(cluster->rails_event);
}

static bool cluster_is_ours(const struct sockaddr_storage *address, int size) {
        int fd = socket(address->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), r = -1;

        if (fd >= 0)
                r = bind(fd, (const struct sockaddr *)address, (socklen_t)size);
        if (fd >= 0)
                close(fd);
        return r == 0 || errno == EADDRINUSE;
}

/* Where the control channel listens. If that is everywhere, what is advertised, if it is an address of this machine (it
 * may be a name, or a router's before us), else where it was before: the machine may just be without that address, and
 * peers would not find the rail at another one. Else the machine's first one. Without its port. */
static void cluster_host(const struct cluster *cluster, char host[PEER_ADDRESS_MAX]) {
        const struct config *config = cluster->manager->config;
        const char *before = cluster->manager->restarts > 0 ? state_rail_host(cluster->manager->state) : NULL;
        struct sockaddr_storage bound = {0}, told = {0};
        char address[PEER_ADDRESS_MAX];
        uint16_t port;
        int size, told_size;

        host[0] = '\0';
        if (peer_address_parse(config->listen, &bound, &size) < 0)
                return;
        peer_address_advertise((const struct sockaddr *)&bound, address);
        if (peer_address_is_wildcard((const struct sockaddr *)&bound)) {
                if (peer_address_parse(config->advertise, &told, &told_size) == 0 &&
                    cluster_is_ours(&told, told_size)) {
                        peer_address_format((const struct sockaddr *)&told, address);
                } else if (before) {
                        snprintf(host, PEER_ADDRESS_MAX, "%s", before);
                        return;
                }
        }
        if (peer_address_split(address, host, &port) < 0)
                host[0] = '\0';
}

/* One beside the control channel, if none is named. */
static void rail_spec_only(const struct cluster *cluster, struct rail_spec *ret_spec) {
        char host[PEER_ADDRESS_MAX];

        cluster_host(cluster, host);
        *ret_spec = (struct rail_spec){.name = RAIL_ONLY};
        snprintf(ret_spec->address, sizeof(ret_spec->address), "%.63s", host);
}

static int rails_note(struct cluster *cluster, const struct rail_spec *specs, uint32_t n) {
        cluster->rails = calloc(n, sizeof(cluster->rails[0]));
        if (!cluster->rails)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++)
                memcpy(cluster->rails[i], specs[i].name, sizeof(cluster->rails[i]));
        cluster->n_rails = n;
        return 0;
}

uint32_t cluster_rails_only(const struct cluster *cluster, const char *names) {
        uint32_t only = 0;

        for (uint32_t i = 0; i < cluster->n_rails; i++)
                if (rail_names_have(names, cluster->rails[i]))
                        only |= 1u << i;
        return only;
}

/* Of n rails the GPU's own ones that may be taken, of gpu, gpu + n_gpus, gpu + 2 * n_gpus, .. below n. */
static uint32_t rails_of_gpu(uint32_t n, uint32_t n_gpus, uint32_t only, uint32_t gpu, uint32_t ret_own[RAILS_MAX]) {
        const uint32_t step = n > n_gpus && gpu < n_gpus ? n_gpus : n;
        uint32_t n_own = 0;

        for (uint32_t i = gpu % n; i < n; i += step)
                if (only >> i & 1)
                        ret_own[n_own++] = i;
        return n_own;
}

const char *cluster_rail_of_gpu(const struct cluster *cluster, uint32_t only, uint32_t gpu, uint32_t n_before) {
        uint32_t n = cluster->n_rails, n_gpus = cluster->manager->n_gpus, n_may, may[RAILS_MAX], turn = n_before;
        const uint32_t all = (1u << n) - 1;

        if (n == 0)
                return NULL;
        only = only & all ? only & all : all;
        n_may = rails_of_gpu(n, n_gpus, only, gpu, may);
        if (n_may == 0) {
                for (uint32_t other = 0; other < gpu; other++) /* those before it that have none either */
                        turn += rails_of_gpu(n, n_gpus, only, other, may) == 0;
                for (uint32_t i = 0; i < n; i++)
                        if (only >> i & 1)
                                may[n_may++] = i;
        }
        return cluster->rails[may[turn % n_may]];
}

bool cluster_rail_serves(const struct cluster *cluster, const char *rail, uint32_t gpu) {
        uint32_t n = cluster->n_rails, n_gpus = cluster->manager->n_gpus;

        for (uint32_t i = 0; i < n; i++)
                if (strcmp(cluster->rails[i], rail) == 0)
                        return n > n_gpus ? i % n_gpus == gpu : gpu % n == i;
        return false;
}

static void rails_forget_drained(struct cluster *cluster, const struct rail_spec *specs, uint32_t n) {
        struct state *state = cluster->manager->state;

        for (uint32_t i = 0; i < STATE_DRAINED; i++) {
                const char *rail = state_drained_rail(state, i);
                bool there = false;

                for (uint32_t k = 0; rail && k < n; k++)
                        there = there || strcmp(specs[k].name, rail) == 0;
                if (!rail || there)
                        continue;
                log_notice("rail %s, which was drained, is not there any more", rail);
                state_drained_forget(state, rail);
        }
}

int cluster_rails_new(struct cluster *cluster, char error[CLUSTER_TEXT_MAX]) {
        const struct manager *manager = cluster->manager;
        struct rail_spec specs[RAILS_MAX];
        bool only;
        uint32_t n = 0;

        if (rail_specs_parse(manager->config->rails, specs, &n, error) < 0)
                return CLUSTER_E_REFUSED;
        only = n == 0;
        if (only)
                rail_spec_only(cluster, &specs[n++]);
        if (rails_note(cluster, specs, n) < 0) {
                snprintf(error, CLUSTER_TEXT_MAX, "no memory for the names of rails");
                return -ENOMEM;
        }
        cluster->rails_event = event_new(manager->base, -1, EV_PERSIST, rails_try_again, cluster);
        if (!cluster->rails_event) {
                snprintf(error, CLUSTER_TEXT_MAX, "no memory for events");
                return -ENOMEM;
        }
        for (uint32_t i = 0; i < n; i++) {
                char why[CLUSTER_TEXT_MAX];
                int r = rail_open(cluster, &specs[i], why);

                if (r == FABRIC_E_ADDRESS && manager->restarts > 0) {
                        r = rail_wait(cluster, &specs[i], why);
                        snprintf(why, sizeof(why), "out of memory");
                }
                if (!r && only)
                        state_note_rail_host(manager->state, specs[i].address);
                if (!r)
                        continue;
                snprintf(error, CLUSTER_TEXT_MAX, "rail %s: %.180s%s", specs[i].name, why,
                         only ? "; peer.rails can name another address" : "");
                if (r == FABRIC_E_ADDRESS && fabric_errno(cluster->fabric))
                        return -fabric_errno(cluster->fabric); /* as peer.listen that cannot be had */
                return r > 0 ? CLUSTER_E_REFUSED : r;
        }
        rails_forget_drained(cluster, specs, n);
        return 0;
}

void cluster_rails_free(struct cluster *cluster) {
        struct cluster_rail *rail, *tmp;

        DL_FOREACH_SAFE(cluster->waiting, rail, tmp) {
                DL_DELETE(cluster->waiting, rail);
                free(rail);
        }
        if (cluster->rails_event)
                event_free(cluster->rails_event);
        cluster->rails_event = NULL;
        free(cluster->rails);
        cluster->rails = NULL;
        cluster->n_rails = 0;
}
