/* SPDX-License-Identifier: MIT */
#pragma once
/* Devices, contexts, their events, protection domains and memory regions of the fake adapters, as calls. */
#include "tests/fabric/fake_world.h"

struct ibv_device **fake_device_list(int *ret_n);
void fake_device_list_free(struct ibv_device **list);
const char *fake_device_name(struct ibv_device *device);
struct ibv_context *fake_device_open(struct ibv_device *ibv);
int fake_context_close(struct ibv_context *ibv);
int fake_context_query_device(struct ibv_context *ibv, struct ibv_device_attr *ret_attr);
int fake_context_query_port(struct ibv_context *ibv, uint8_t port, struct ibv_port_attr *ret_attr);
ssize_t fake_context_query_gids(struct ibv_context *ibv, struct ibv_gid_entry *ret_entries, size_t max);
int fake_context_get_event(struct ibv_context *ibv, struct ibv_async_event *ret_event);
void fake_context_ack_event(struct ibv_async_event *event);
struct ibv_pd *fake_pd_alloc(struct ibv_context *ibv);
int fake_pd_dealloc(struct ibv_pd *ibv);
struct ibv_mr *fake_mr_reg(struct ibv_pd *ibv_pd, void *address, size_t bytes, int access);
int fake_mr_dereg(struct ibv_mr *ibv);
void fake_mr_free(struct fake_mr *mr);
