/* SPDX-License-Identifier: MIT */
#pragma once
/* The operators' socket. Who may connect is decided by the mode of the socket. Loop thread. */
struct control;
struct manager;

/* Takes "control" from the fd store or listens at config->control_socket. 0 or -errno. */
int control_new(struct manager *manager, struct control **ret_control);
struct control *control_free(struct control *control);
/* What it knows of this machine: the next one who asks has it looked at again. */
void control_forget(struct control *control);
