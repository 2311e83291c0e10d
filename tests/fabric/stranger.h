/* SPDX-License-Identifier: MIT */
#pragma once
/* Somebody who speaks to a fabric over a socket of his own, as a node would or as none should. All fail the test. */
#include "fabric/hello.h"
#include "tests/fabric/rig.h"

/* From 127.0.0.1, where all nodes are, or another address of loopback. */
int stranger_dial(struct rig *rig, uint32_t node);
int stranger_dial_from(struct rig *rig, uint32_t node, const char *address);
void stranger_say(int fd, const void *bytes, size_t size);
/* Exactly so many bytes; false if the connection ends before. */
bool stranger_hear(int fd, void *bytes, size_t size);
/* The rest; closes it. */
void stranger_hear_end(int fd);
/* Node 0 as it would say hello to node 1. */
struct hello stranger_hello_of(const struct rig *rig);
/* Says it, and hears the answer. */
enum hello_status stranger_greet(int fd, const struct hello *hello, uint8_t token_byte);
/* To node 1, over a connection of its own. ret_fd NULL: and hears that it ends. */
enum hello_status stranger_ask(struct rig *rig, const struct hello *hello, uint8_t token_byte, int *ret_fd);

/* In place of node 1. */
int stranger_listen_for(uint32_t rail, uint16_t *ret_port);
int stranger_hear_hello(int listen_fd, struct hello *ret_hello);
void stranger_answer(int fd, const struct hello *hello, enum hello_status status);
/* And hears the end. */
void stranger_refuse(int fd, const struct hello *hello, enum hello_status status);
