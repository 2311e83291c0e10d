/* SPDX-License-Identifier: MIT */
#pragma once
/* Addresses of daemons as texts: "10.0.0.1:7600", "[fd00::1]:7600", "node7:7600". Any thread. */
#include <stdbool.h>
#include <stdint.h>

struct in6_addr;
struct sockaddr;
struct sockaddr_storage;

#define PEER_ADDRESS_MAX 128u /* with the final zero byte */

/* "host:port" or "[v6]:port" into its parts; host is a name or a number. 0 or -EINVAL. */
int peer_address_split(const char *address, char host[PEER_ADDRESS_MAX], uint16_t *ret_port);
/* A numeric address. 0 or -EINVAL (a name, or nothing that can be understood). */
int peer_address_parse(const char *address, struct sockaddr_storage *ret_address, int *ret_size);
/* The host alone, to be compared: IPv4 as IPv6 has it, without an interface, which each machine calls otherwise. 0 or
 * -EINVAL, as above. */
int peer_address_host(const char *address, struct in6_addr *ret_host);
void peer_address_format(const struct sockaddr *address, char out[PEER_ADDRESS_MAX]);
bool peer_address_is_wildcard(const struct sockaddr *address);
bool peer_address_is_loopback(const struct sockaddr *address);
/* Where others can dial a daemon that listens at `bound`: this address, or the host's first one for a wildcard. */
void peer_address_advertise(const struct sockaddr *bound, char out[PEER_ADDRESS_MAX]);
