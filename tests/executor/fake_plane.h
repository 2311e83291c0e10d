/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A plane plug-in that serves nothing: it remembers what it is told and checks that it may be told so. Tests steer it
 * through a directory, $FAKE_PLANE, whichever process it is loaded into. D is the number of the device:
 *
 *   gpus        how many devices the probe finds, and after a blank a problem; no file: 4 without one
 *   D.log       a line for each call, written by the plug-in: "comm_attach 7 ranks=4 code=0 ...", and for what comes
 *               from other nodes (fake_net.h): "net 7 rank=0 from=3"
 *   D.fail      "CALL ERRNO": this call fails with that errno (a positive number here)
 *   D.reports   what report() says, a line each: "COMM RANK RUNG FINISHED OPERATION STATUS"
 *   D.pairs     what pairs() says, a line each: "COMM RANK PEER SENDS RUNG FINISHED"
 *   D.lost      exists: the context is lost, tick() says so
 *   D.hang      exists: comm_abort() does not return
 *   D.busy      exists: drain() does not come to an end
 *   D.lingers   exists: close() does not, which ends the kernels of others
 *   D.shuns     how often the page that begins kernels has been taken out of use; no file: never. D.log has a
 *               line "shuns 3" each time that somebody looks
 *   D.workers   how many workers its kernels have, as it is opened; no file: 32
 *   D.reaches   exists: it can map buffers of other GPUs, as it is opened
 *   D.bursts    exists: it knows bursts, as it is opened
 *   D.speaks    exists: ranks of communicators over nodes say what they have to say to each other (fake_net.h)
 *   D.slow_buffers, D.slow_tell, D.slow_import, D.slow_reach, D.slow_detach
 *               exist: buffer_retire(), buffer_reach(), reach_import(), reach_retire(), comm_detach() do not return
 *   pool        bytes of each pool; no file: 256 MiB
 */
#include <stdint.h>

#define FAKE_PLANE_DIRECTORY "FAKE_PLANE"
#define FAKE_PLANE_POOL      (UINT64_C(256) << 20)
#define FAKE_PLANE_WORKERS   32u
