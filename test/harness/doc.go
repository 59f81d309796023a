// Package harness is what the suites share that run the manager against a local cluster: starting
// the cluster with the rights that the manager is shipped with ([Run], [Grant]), a namespace and
// managers for one test ([Env], [Manager]), reading, changing and waiting for objects ([Read],
// [Update], [Eventually], [Versions]), conditions and what kstatus computes from them ([Conditions],
// [KStatus]), and a report with the objects and their managed fields when an expectation fails
// ([Reporter]).
//
// What a new phase or a new kind must be covered by is derived here from the phases and the scheme
// ([Phases], [Kinds]), so that a suite notices what is missing from its tables.
package harness
