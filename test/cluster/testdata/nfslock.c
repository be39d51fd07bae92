/*
 * A client of NFSv4.0 that takes a lock and, when its server is another one, reclaims it there (RFC 7530, section 9.6.2). It speaks by the
 * raw calls of libnfs: the library's own, such as nfs_lockf, do not reclaim.
 *
 *	nfslock NAME
 *
 * NAME is who it is for servers, the same in each of its connections; the clients of Linux put the server's address into it. Each line of its input is answered by one line: the status of NFSv4
 * (RFC 7530, section 13.1), 0 for done, or "broken" where there is no connection.
 *
 *	connect ADDRESS        a connection and a client id
 *	open DIRECTORY FILE    the file is made if need be
 *	lock, unlock, write    of the whole file; with the lock
 *	reclaim                the opened file and its lock, in a grace period
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-nfs4.h>

enum { PATIENCE = 10 }; /* seconds for one call */

static char *name;
static char verifier[NFS4_VERIFIER_SIZE];
static struct rpc_context *rpc;
static clientid4 client;
static uint32_t open_seq, lock_seq;
static stateid4 open_state, lock_state;
static char handle[NFS4_FHSIZE];
static u_int handle_len;

/* What the last call came to. Of its results only what is needed is kept, since they are gone after the callback. */
static int done, broken, status;
static char confirm[NFS4_VERIFIER_SIZE];
static uint32_t open_flags;

static void take(nfs_resop4 *r)
{
	switch (r->resop) {
	case OP_SETCLIENTID:
		if (r->nfs_resop4_u.opsetclientid.status == NFS4_OK) {
			client = r->nfs_resop4_u.opsetclientid.SETCLIENTID4res_u.resok4.clientid;
			memcpy(confirm, r->nfs_resop4_u.opsetclientid.SETCLIENTID4res_u.resok4.setclientid_confirm, sizeof(confirm));
		}
		break;
	case OP_OPEN:
		if (r->nfs_resop4_u.opopen.status == NFS4_OK) {
			open_state = r->nfs_resop4_u.opopen.OPEN4res_u.resok4.stateid;
			open_flags = r->nfs_resop4_u.opopen.OPEN4res_u.resok4.rflags;
		}
		break;
	case OP_OPEN_CONFIRM:
		if (r->nfs_resop4_u.opopen_confirm.status == NFS4_OK)
			open_state = r->nfs_resop4_u.opopen_confirm.OPEN_CONFIRM4res_u.resok4.open_stateid;
		break;
	case OP_GETFH:
		if (r->nfs_resop4_u.opgetfh.status == NFS4_OK) {
			handle_len = r->nfs_resop4_u.opgetfh.GETFH4res_u.resok4.object.nfs_fh4_len;
			memcpy(handle, r->nfs_resop4_u.opgetfh.GETFH4res_u.resok4.object.nfs_fh4_val, handle_len);
		}
		break;
	case OP_LOCK:
		if (r->nfs_resop4_u.oplock.status == NFS4_OK)
			lock_state = r->nfs_resop4_u.oplock.LOCK4res_u.resok4.lock_stateid;
		break;
	default:
		break;
	}
}

static void answered(struct rpc_context *r, int how, void *data, void *private_data)
{
	(void)r;
	(void)private_data;
	done = 1;
	broken = how != RPC_STATUS_SUCCESS;
	if (broken)
		return;
	COMPOUND4res *res = data;
	status = res->status;
	for (u_int i = 0; i < res->resarray.resarray_len; i++)
		take(&res->resarray.resarray_val[i]);
}

static void connected(struct rpc_context *r, int how, void *data, void *private_data)
{
	(void)r;
	(void)data;
	(void)private_data;
	done = 1;
	broken = how != RPC_STATUS_SUCCESS;
}

/* Waits for the callback. */
static int await(void)
{
	struct timeval now;
	gettimeofday(&now, NULL);
	for (time_t until = now.tv_sec + PATIENCE; !done && now.tv_sec < until; gettimeofday(&now, NULL)) {
		struct pollfd p = {.fd = rpc_get_fd(rpc), .events = rpc_which_events(rpc)};
		if (poll(&p, 1, 100) < 0 || rpc_service(rpc, p.revents) < 0)
			break;
	}
	if (!done)
		broken = 1;
	return broken ? -1 : 0;
}

static int call(nfs_argop4 *ops, u_int count)
{
	COMPOUND4args args;
	memset(&args, 0, sizeof(args));
	args.argarray.argarray_len = count;
	args.argarray.argarray_val = ops;
	done = broken = 0;
	if (!rpc || rpc_nfs4_compound_async(rpc, answered, &args, NULL) != 0) {
		broken = 1;
		return -1;
	}
	return await() < 0 || status != NFS4_OK ? -1 : 0;
}

static void connect_to(const char *address)
{
	if (rpc)
		rpc_destroy_context(rpc);
	rpc = rpc_init_context();
	done = broken = 0;
	if (rpc_connect_port_async(rpc, address, 2049, NFS4_PROGRAM, NFS_V4, connected, NULL) != 0 || await() < 0) {
		broken = 1;
		return;
	}
	nfs_argop4 op[1];
	memset(op, 0, sizeof(op));
	op[0].argop = OP_SETCLIENTID;
	SETCLIENTID4args *set = &op[0].nfs_argop4_u.opsetclientid;
	memcpy(set->client.verifier, verifier, sizeof(verifier));
	set->client.id.id_len = strlen(name);
	set->client.id.id_val = name;
	set->callback.cb_location.r_netid = "tcp";
	set->callback.cb_location.r_addr = "0.0.0.0.0.0";
	if (call(op, 1) < 0)
		return;
	memset(op, 0, sizeof(op));
	op[0].argop = OP_SETCLIENTID_CONFIRM;
	op[0].nfs_argop4_u.opsetclientid_confirm.clientid = client;
	memcpy(op[0].nfs_argop4_u.opsetclientid_confirm.setclientid_confirm, confirm, sizeof(confirm));
	call(op, 1);
}

static void put_handle(nfs_argop4 *op)
{
	op->argop = OP_PUTFH;
	op->nfs_argop4_u.opputfh.object.nfs_fh4_len = handle_len;
	op->nfs_argop4_u.opputfh.object.nfs_fh4_val = handle;
}

/* Fills in what all ways to open have in common. */
static OPEN4args *opening(nfs_argop4 *op)
{
	op->argop = OP_OPEN;
	OPEN4args *o = &op->nfs_argop4_u.opopen;
	o->seqid = open_seq++;
	o->share_access = OPEN4_SHARE_ACCESS_BOTH;
	o->share_deny = OPEN4_SHARE_DENY_NONE;
	o->owner.clientid = client;
	o->owner.owner.owner_len = strlen(name);
	o->owner.owner.owner_val = name;
	return o;
}

/* A new owner of opened files is to be confirmed. */
static void confirm_open(void)
{
	if (!(open_flags & OPEN4_RESULT_CONFIRM))
		return;
	nfs_argop4 op[2];
	memset(op, 0, sizeof(op));
	put_handle(&op[0]);
	op[1].argop = OP_OPEN_CONFIRM;
	op[1].nfs_argop4_u.opopen_confirm.open_stateid = open_state;
	op[1].nfs_argop4_u.opopen_confirm.seqid = open_seq++;
	call(op, 2);
}

static void open_file(char *directory, char *file)
{
	nfs_argop4 op[4];
	memset(op, 0, sizeof(op));
	op[0].argop = OP_PUTROOTFH;
	op[1].argop = OP_LOOKUP;
	op[1].nfs_argop4_u.oplookup.objname.utf8string_len = strlen(directory);
	op[1].nfs_argop4_u.oplookup.objname.utf8string_val = directory;
	OPEN4args *o = opening(&op[2]);
	o->openhow.opentype = OPEN4_CREATE;
	o->openhow.openflag4_u.how.mode = UNCHECKED4;
	o->claim.claim = CLAIM_NULL;
	o->claim.open_claim4_u.file.utf8string_len = strlen(file);
	o->claim.open_claim4_u.file.utf8string_val = file;
	op[3].argop = OP_GETFH;
	if (call(op, 4) == 0)
		confirm_open();
}

static void lock_file(int reclaim)
{
	nfs_argop4 op[2];
	memset(op, 0, sizeof(op));
	put_handle(&op[0]);
	op[1].argop = OP_LOCK;
	LOCK4args *l = &op[1].nfs_argop4_u.oplock;
	l->locktype = WRITE_LT;
	l->reclaim = reclaim;
	l->length = UINT64_MAX; /* to the end */
	l->locker.new_lock_owner = 1;
	l->locker.locker4_u.open_owner.open_seqid = open_seq++;
	l->locker.locker4_u.open_owner.open_stateid = open_state;
	l->locker.locker4_u.open_owner.lock_seqid = lock_seq++;
	l->locker.locker4_u.open_owner.lock_owner.clientid = client;
	l->locker.locker4_u.open_owner.lock_owner.owner.owner_len = strlen(name);
	l->locker.locker4_u.open_owner.lock_owner.owner.owner_val = name;
	call(op, 2);
}

static void unlock_file(void)
{
	nfs_argop4 op[2];
	memset(op, 0, sizeof(op));
	put_handle(&op[0]);
	op[1].argop = OP_LOCKU;
	LOCKU4args *u = &op[1].nfs_argop4_u.oplocku;
	u->locktype = WRITE_LT;
	u->seqid = lock_seq++;
	u->lock_stateid = lock_state;
	u->length = UINT64_MAX;
	call(op, 2);
}

static void reclaim_all(void)
{
	nfs_argop4 op[2];
	memset(op, 0, sizeof(op));
	put_handle(&op[0]);
	OPEN4args *o = opening(&op[1]);
	o->openhow.opentype = OPEN4_NOCREATE;
	o->claim.claim = CLAIM_PREVIOUS;
	o->claim.open_claim4_u.delegate_type = OPEN_DELEGATE_NONE;
	if (call(op, 2) < 0)
		return;
	confirm_open();
	if (!broken && status == NFS4_OK)
		lock_file(1);
}

static void write_file(void)
{
	nfs_argop4 op[2];
	memset(op, 0, sizeof(op));
	put_handle(&op[0]);
	op[1].argop = OP_WRITE;
	WRITE4args *w = &op[1].nfs_argop4_u.opwrite;
	w->stateid = lock_state;
	w->stable = FILE_SYNC4;
	w->data.data_len = strlen(name);
	w->data.data_val = name;
	call(op, 2);
}

int main(int argc, char **argv)
{
	char line[256], word[3][80];
	if (argc != 2)
		return 2;
	name = argv[1];
	snprintf(verifier, sizeof(verifier), "%s", name); /* the same in each life: nobody takes it for a client that was restarted */
	while (fgets(line, sizeof(line), stdin)) {
		int words = sscanf(line, "%79s %79s %79s", word[0], word[1], word[2]);
		status = broken = 0;
		if (words == 2 && !strcmp(word[0], "connect"))
			connect_to(word[1]);
		else if (words == 3 && !strcmp(word[0], "open"))
			open_file(word[1], word[2]);
		else if (words == 1 && !strcmp(word[0], "lock"))
			lock_file(0);
		else if (words == 1 && !strcmp(word[0], "unlock"))
			unlock_file();
		else if (words == 1 && !strcmp(word[0], "reclaim"))
			reclaim_all();
		else if (words == 1 && !strcmp(word[0], "write"))
			write_file();
		else
			return 2;
		if (broken)
			puts("broken");
		else
			printf("%d\n", status);
		fflush(stdout);
	}
	return 0;
}
