/* SPDX-License-Identifier: MIT */
#pragma once
/* `railmuxd --keep`: a service manager of one service. It speaks systemd's notify protocol (READY, WATCHDOG, STOPPING,
 * FDSTORE, FDNAME, FDSTOREREMOVE, BARRIER, plus X_RAILMUX_EXECUTOR=NAME) and hands stored fds over with
 * LISTEN_FDS/LISTEN_FDNAMES, so railmuxd behaves the same under both. Runs railmuxd and the executors as direct
 * children and restarts what dies. Returns an exit status. */
int keeper_run(int argc, char **argv);
