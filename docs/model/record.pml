/*
 * Who holds what: statements in the store, acknowledgements, failover, lapse and resume, incarnations. Without time.
 *
 * WHAT. One address and NODES nodes. The store is a list of at most E statements (owner, next), each with incarnations; to
 * swap is to append. Statement 0 is (node 0, next node 1). Never may two nodes hold rightfully: hold and have leases.
 *
 * TIME IS LEFT OUT. What lease.pml proves with time is an assumption here: that an incarnation is found Down only when it has
 * lapsed, and never has its right again. So a node may lapse at any moment, resume at any later one, or be over at any later
 * one; a crash is a lapse that is over at once. `over`, later incarnations and acknowledgements stay true once they are: whoever
 * acts on one does so at any later moment or never, so messages need no queues and may be lost, delayed and repeated.
 *
 * OVER-APPROXIMATIONS. Anybody may propose any two nodes at any moment (the design: the proposal is a pure function); with STALE
 * also under incarnations that are past. A node may act on a copy of the record of any age, as far as its own acknowledgements
 * allow. A lapsed node may acknowledge. A next that has taken may release and acknowledge (the design: it refuses).
 *
 * BOUNDS. NODES, E, and at most MAXI + 1 lapses of each node that are not resumed. Not proved beyond them.
 *
 * OPTIONS. NODES, E, MAXI, STALE. LIVE: at some moment calm begins; then nothing lapses, a node that has lapsed resumes or is
 * over, each may be dead if it is over, and a node that sees owner and next of the last statement over proposes itself. Every run
 * then comes to an end, and at the end somebody must hold unless all are dead.
 * BROKEN RULES: OLDNEXT OLDRECORD UNLEASED PREVIOUSONLY KEEP DOWNRESUMES ORPHAN (with LIVE). README.md says what they are.
 */
#ifndef NODES
#define NODES 3
#endif
#ifndef E
#define E 3
#endif
#ifndef MAXI
#define MAXI 1
#endif
#ifdef LIVE
#define RESERVED 1
#else
#define RESERVED 0
#endif

byte incarnation[NODES];
bit up[NODES];     /* has enough leases */
bit over[NODES];   /* its incarnation is over: Down, or it has begun no other yet; otherwise, when not up, it may resume */
byte acked[NODES]; /* the last statement that it has acknowledged under its incarnation */
byte holds[NODES]; /* 0, or 1 + the statement by which it holds, or held before it lapsed */
byte owner[E], ownerinc[E], next[E], nextinc[E], top = 1;
bit calm, dead[NODES];
byte i, j, k;
bit keeps;

#define GONE(n, inc) (incarnation[n] > (inc) || over[n])
#ifdef OLDRECORD
#define MINE(x, inc, n) ((x) == (n))
#else
#define MINE(x, inc, n) ((x) == (n) && (inc) == incarnation[n])
#endif

/* Does (x, inc), an actor of an earlier statement, no longer stand in the way of statement e, as node n knows it? */
#define CLEAR(x, inc, n, e) (MINE(x, inc, n) || GONE(x, inc) || acked[x] >= (e))
#ifdef OLDNEXT
#define ACTORS(p, n, e) CLEAR(owner[p], ownerinc[p], n, e)
#else
#define ACTORS(p, n, e) (CLEAR(owner[p], ownerinc[p], n, e) && CLEAR(next[p], nextinc[p], n, e))
#endif
#ifdef PREVIOUSONLY
#define PAST(p, n, e) ((p) + 1 != (e) || ACTORS(p, n, e))
#else
#define PAST(p, n, e) ((p) >= (e) || ACTORS(p, n, e))
#endif
/* The safety argument: everyone who could act on any earlier statement has acknowledged this one, or is Down. */
#define INEFFECT(n, e) (PAST(0, n, e) && PAST(1, n, e) && PAST(2, n, e))

#define RIGHTFUL(n) (holds[n] && up[n])
#if NODES > 3
#define HOLDERS (RIGHTFUL(0) + RIGHTFUL(1) + RIGHTFUL(2) + RIGHTFUL(3))
#define ALLDEAD (over[0] && over[1] && over[2] && over[3])
#else
#define HOLDERS (RIGHTFUL(0) + RIGHTFUL(1) + RIGHTFUL(2))
#define ALLDEAD (over[0] && over[1] && over[2])
#endif

inline append(a, ai, b, bi) {
	owner[top] = a; ownerinc[top] = ai; next[top] = b; nextinc[top] = bi; top++;
	printf("store: statement %d is owner %d/%d, next %d/%d\n", top - 1, a, ai, b, bi)
}

/* May a holder acknowledge statement e without releasing? Only if every statement since the one it holds by names it owner. */
inline judgekeep(who, e) {
#ifdef KEEP
	keeps = MINE(owner[e], ownerinc[e], who);
#else
	keeps = 1; k = holds[who];
	do
	:: k <= e && keeps -> keeps = MINE(owner[k], ownerinc[k], who); k++
	:: else -> break
	od;
	k = 0
#endif
}
inline acknowledge(n, e) {
	d_step {
		if
		:: holds[n] -> judgekeep(n, e);
			if :: !keeps -> holds[n] = 0; printf("node %d releases\n", n) :: else fi
		:: else
		fi;
		keeps = 0; acked[n] = e;
		printf("node %d/%d acknowledges %d; holds %d\n", n, incarnation[n], e, holds[n] > 0)
	}
}
#define MAYACT(n, e) (up[n] && (e) < top && (e) >= acked[n] && holds[n] < 1 + (e))
inline statement(n, e) {
	if
	:: !over[n] && e < top && e > acked[n] -> acknowledge(n, e)
	:: MAYACT(n, e) && MINE(owner[e], ownerinc[e], n) && INEFFECT(n, e) ->
		d_step { holds[n] = 1 + e; acked[n] = e; printf("node %d/%d holds as owner by %d\n", n, incarnation[n], e) }
	:: MAYACT(n, e) && !holds[n] && MINE(next[e], nextinc[e], n) && GONE(owner[e], ownerinc[e]) && INEFFECT(n, e) ->
		d_step { holds[n] = 1 + e; acked[n] = e; printf("node %d/%d takes as next by %d\n", n, incarnation[n], e) }
	fi
}

inline life(n) {
	if
	:: up[n] && !calm -> d_step { up[n] = 0; printf("node %d/%d lapses\n", n, incarnation[n]) }
	:: !up[n] && !over[n] -> d_step { up[n] = 1; printf("node %d/%d resumes\n", n, incarnation[n]) }
	:: !up[n] && !over[n] && incarnation[n] <= MAXI -> d_step {
#ifdef DOWNRESUMES
		over[n] = 1;
#else
		over[n] = 1; holds[n] = 0; acked[n] = 0;
#endif
		printf("node %d/%d is Down\n", n, incarnation[n])
#ifdef UNLEASED
		; incarnation[n]++
#endif
		}
	:: over[n] && !dead[n] && incarnation[n] <= MAXI -> d_step { over[n] = 0; up[n] = 1;
#if !defined(UNLEASED) && !defined(DOWNRESUMES)
		incarnation[n]++;
#endif
		printf("node %d/%d has leases\n", n, incarnation[n]) }
#ifdef LIVE
#ifdef ORPHAN
#define FORLORN(x, inc) (GONE(x, inc) && dead[x])
#else
#define FORLORN(x, inc) GONE(x, inc)
#endif
	:: calm && up[n] && top < E && FORLORN(owner[top - 1], ownerinc[top - 1]) && FORLORN(next[top - 1], nextinc[top - 1]) ->
		if
		:: d_step { append(n, incarnation[n], (n + 1) % NODES, incarnation[(n + 1) % NODES]) }
		:: d_step { append(n, incarnation[n], (n + 2) % NODES, incarnation[(n + 2) % NODES]) }
		fi
#endif
	fi
}
inline node(n) {
	if
	:: life(n)
	:: MAYACT(n, 0) && MINE(owner[0], ownerinc[0], n) -> d_step { holds[n] = 1; printf("node %d/%d holds as owner by 0\n", n, incarnation[n]) }
	:: MAYACT(n, 0) && MINE(next[0], nextinc[0], n) && GONE(owner[0], ownerinc[0]) ->
		d_step { holds[n] = 1; printf("node %d/%d takes as next by 0\n", n, incarnation[n]) }
	:: statement(n, 1)
	:: statement(n, 2)
#if E > 3
	:: statement(n, 3)
#endif
	fi
}

inline propose() {
	i = 0; do :: i < NODES - 1 -> i++ :: break od;
	j = 0; do :: j < NODES - 1 -> j++ :: break od;
	if
	:: i != j ->
		if
		:: d_step { append(i, incarnation[i], j, incarnation[j]) }
#ifdef STALE
		:: incarnation[i] > 0 -> d_step { append(i, incarnation[i] - 1, j, incarnation[j]) }
		:: incarnation[j] > 0 -> d_step { append(i, incarnation[i], j, incarnation[j] - 1) }
#endif
		fi
	:: else
	fi;
	i = 0; j = 0
}
inline maydie(n) {
	if :: over[n] -> dead[n] = 1 :: true fi
}

init {
	d_step {
		next[0] = 1; holds[0] = 1;
		up[0] = 1; up[1] = 1; up[2] = 1;
#if NODES > 3
		up[3] = 1
#endif
	};
	do
	:: atomic {
		if
		:: node(0)
		:: node(1)
		:: node(2)
#if NODES > 3
		:: node(3)
#endif
		:: !calm && top < E - RESERVED -> propose()
#ifdef LIVE
		:: !calm -> calm = 1; printf("=== calm\n"); maydie(0); maydie(1); maydie(2)
#endif
		fi;
		assert(HOLDERS <= 1)
	}
	:: timeout -> break
	od;
#ifdef LIVE
	assert(!calm || HOLDERS == 1 || ALLDEAD)
#endif
}
