/* SPDX-License-Identifier: MIT */
#pragma once
/* The process's table of descriptors. See fds.c. */

/* As many as the hard limit allows. */
void fds_raise(void);
/* Room for so many, or for as many as the soft limit allows, before there are threads. */
void fds_reserve(unsigned int n);
