/*
 * Changing observers: leases and confirmations while the set of N's observers changes. Without time.
 *
 * WHAT. One incarnation of N, whose observers change from the set OLD to the set NEW; M, which asks under the version that it
 * knows. The store says OLD, then both, then NEW; N, M and each observer read that when they like, and never go back. Never
 * may N have its right once M has found it Down.
 *
 * TIME IS LEFT OUT, on what lease.pml proves of one observer: it confirms only when N has no lease from it; while its promise
 * runs it gives none; a confirmation counts only while the promise behind it runs (so a promise ends only when no open
 * question counts on it). "One span has passed" is here: every question that was asked before the change could end has been
 * dropped, since a confirmation counts for less than an interval. N, lapsed, gets nothing from unmarked heartbeats.
 *
 * OVER-APPROXIMATIONS. A lease may be given and may end at any moment. A confirmation counts for every set of which its giver is
 * a member, whatever version the giver has reached, except under the old version alone. Observers of the old set go on
 * acknowledging after the change.
 *
 * BOUNDS. One change. SETS 1: {0} to {1}; 2: {0,1} to {1,2}; 3 (default): {0,1,2} to {1,2,3}; 4: {0,1,2} to {2,3,4}.
 * RESTART: observers restart.
 * BROKEN RULES: CARRYLAPSE NOSPAN MOVEDCONFIRMS WITHOUTNODE WITHOUTMAJORITY ONESET FORGETSVIEW. README.md says what they are.
 */
#ifndef SETS
#define SETS 3
#endif
#if SETS == 1
#define COUNT 2
#define OLD(x) (x[0])
#define NEW(x) (x[1])
#define INOLD(o) ((o) == 0)
#define INNEW(o) ((o) == 1)
#define NEED 1
#define MAJORITY 1
#elif SETS == 2
#define COUNT 3
#define OLD(x) (x[0] + x[1])
#define NEW(x) (x[1] + x[2])
#define INOLD(o) ((o) < 2)
#define INNEW(o) ((o) > 0)
#define NEED 1
#define MAJORITY 2
#elif SETS == 3
#define COUNT 4
#define OLD(x) (x[0] + x[1] + x[2])
#define NEW(x) (x[1] + x[2] + x[3])
#define INOLD(o) ((o) < 3)
#define INNEW(o) ((o) > 0)
#define NEED 2
#define MAJORITY 2
#else
#define COUNT 5
#define OLD(x) (x[0] + x[1] + x[2])
#define NEW(x) (x[2] + x[3] + x[4])
#define INOLD(o) ((o) < 3)
#define INNEW(o) ((o) > 1)
#define NEED 2
#define MAJORITY 2
#endif
#define VERSIONOLD 0
#define VERSIONBOTH 1
#define VERSIONNEW 2

byte stored, viewN, viewM, view[COUNT]; /* versions: what the store says, and what each has recorded */
bit moved[COUNT];                       /* view > 0 */
bit lease[COUNT], promise[COUNT], confirmed[COUNT], watched[COUNT];
bit up = 1, found;
bit asked, late, yes[COUNT];            /* M's question; late: asked when the change could end already */
byte asks;                              /* its version */

#ifdef ONESET
#define ENOUGH (viewN == VERSIONNEW -> NEW(lease) >= NEED : OLD(lease) >= NEED || (viewN == VERSIONBOTH && NEW(lease) >= NEED))
#else
#define ENOUGH ((viewN == VERSIONNEW || OLD(lease) >= NEED) && (viewN == VERSIONOLD || NEW(lease) >= NEED))
#endif
#define ISDOWN ((asks == VERSIONNEW || OLD(yes) >= MAJORITY) && (asks == VERSIONOLD || NEW(yes) >= MAJORITY))

#ifdef WITHOUTNODE
#define NODERECORDED true
#else
#define NODERECORDED (viewN > 0)
#endif
#ifdef WITHOUTMAJORITY
#define OLDRECORDED true
#else
#define OLDRECORDED (OLD(moved) >= NEED)
#endif
#define MAYEND (stored == VERSIONBOTH && NODERECORDED && OLDRECORDED)
#ifdef NOSPAN
#define SPANPASSED true
#else
#define SPANPASSED (!asked || late)
#endif
#ifdef MOVEDCONFIRMS
#define REFUSES(o) false
#else
#define REFUSES(o) (asks == VERSIONOLD && moved[o])
#endif
#ifdef CARRYLAPSE
#define MAYLEAVE true
#else
#define MAYLEAVE up
#endif

inline judge() {
	if :: up && !ENOUGH -> up = 0; printf("N lapses\n") :: else fi
}
inline drop() {
	asked = 0; late = 0; asks = 0;
	yes[0] = 0; yes[1] = 0;
#if COUNT > 2
	yes[2] = 0;
#endif
#if COUNT > 3
	yes[3] = 0;
#endif
#if COUNT > 4
	yes[4] = 0;
#endif
	skip
}
#define OBSERVES(o) (INOLD(o) || view[o] > 0)

inline observer(o) {
	if
	:: view[o] < stored -> d_step { view[o]++; moved[o] = 1; printf("observer %d records version %d\n", o, view[o]) }
	:: lease[o] -> d_step { lease[o] = 0; printf("N's lease from observer %d runs out\n", o); judge() }
	:: OBSERVES(o) && !lease[o] && !promise[o] && up -> d_step { lease[o] = 1; watched[o] = 1; printf("N gets a lease from observer %d\n", o) }
	:: OBSERVES(o) && !lease[o] && !promise[o] && !up && watched[o] && !confirmed[o] ->
		d_step { lease[o] = 1; printf("observer %d answers a marked heartbeat\n", o);
			if :: ENOUGH -> up = 1; printf("N resumes\n") :: else fi }
	:: OBSERVES(o) && asked && !yes[o] && !lease[o] && !REFUSES(o) -> d_step { yes[o] = 1; promise[o] = 1; confirmed[o] = 1;
		printf("observer %d confirms under version %d\n", o, asks);
		if :: ISDOWN -> found = 1; drop(); printf("M has found N Down\n") :: else fi }
	:: promise[o] && !yes[o] -> promise[o] = 0; printf("the promise of observer %d is over\n", o)
#ifdef RESTART
	:: d_step { promise[o] = 1; confirmed[o] = 0; watched[o] = 0; printf("observer %d restarts\n", o)
#ifdef FORGETSVIEW
		; view[o] = 0; moved[o] = 0
#endif
		}
#endif
	fi
}

init {
	d_step {
		lease[0] = 1; watched[0] = 1;
#if SETS > 1
		lease[1] = 1; watched[1] = 1;
#endif
#if SETS > 2
		lease[2] = 1; watched[2] = 1;
#endif
		printf("N has leases of the old set\n")
	};
end:
	do
	:: atomic {
		if
		:: observer(0)
		:: observer(1)
#if COUNT > 2
		:: observer(2)
#endif
#if COUNT > 3
		:: observer(3)
#endif
#if COUNT > 4
		:: observer(4)
#endif
		:: stored == VERSIONOLD -> stored = VERSIONBOTH; printf("store: both sets\n")
		:: MAYEND && SPANPASSED -> stored = VERSIONNEW; printf("store: the new set\n")
		:: viewN == VERSIONOLD && stored > 0 -> d_step { viewN = VERSIONBOTH; printf("N records both sets\n"); judge() }
		:: viewN < VERSIONNEW && stored == VERSIONNEW && MAYLEAVE -> d_step { viewN = VERSIONNEW; printf("N leaves the old set\n");
			judge() }
		:: viewM < stored -> viewM++; printf("M records version %d\n", viewM)
		:: !found && !asked -> d_step { asked = 1; asks = viewM; late = MAYEND || stored == VERSIONNEW; printf("M asks under version %d\n", viewM) }
		:: !found && asked -> d_step { drop(); printf("M drops its question\n") }
		fi;
		assert(!(found && up))
	}
	od
}
