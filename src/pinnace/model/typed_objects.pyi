"""The built-in kinds of Kubernetes 1.37 as TypedDicts. Written by `tools/typed_objects.py`; do not edit.

An object is a plain dict at run time, and keeps fields that its type does not name.
"""

from typing import Any, Required, TypedDict

Quantity = str
"""As the server writes it: `500m`, `1Gi`."""

def definition_of(name: str) -> str:
    """Return the full name of the definition of a class, such as io.k8s.api.core.v1.PodSpec."""

class StoredObject(TypedDict, total=False):
    """The fields that every kind has whose objects the server stores."""

    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]

class APIGroup(TypedDict, total=False):
    apiVersion: str
    kind: str
    name: Required[str]
    preferredVersion: GroupVersionForDiscovery
    serverAddressByClientCIDRs: list[ServerAddressByClientCIDR]
    versions: Required[list[GroupVersionForDiscovery]]

class APIGroupList(TypedDict, total=False):
    apiVersion: str
    groups: Required[list[APIGroup]]
    kind: str

class APIResource(TypedDict, total=False):
    categories: list[str]
    group: str
    kind: Required[str]
    name: Required[str]
    namespaced: Required[bool]
    shortNames: list[str]
    singularName: Required[str]
    storageVersionHash: str
    verbs: Required[list[str]]
    version: str

class APIResourceList(TypedDict, total=False):
    apiVersion: str
    groupVersion: Required[str]
    kind: str
    resources: Required[list[APIResource]]

class APIService(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[APIServiceSpec]
    status: APIServiceStatus

class APIServiceCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    reason: str
    status: Required[str]
    type: Required[str]

class APIServiceList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[APIService]]
    kind: str
    metadata: ListMeta

class APIServiceSpec(TypedDict, total=False):
    caBundle: str
    group: str
    groupPriorityMinimum: Required[int]
    insecureSkipTLSVerify: bool
    service: ApiregistrationServiceReference
    version: str
    versionPriority: Required[int]

class APIServiceStatus(TypedDict, total=False):
    conditions: list[APIServiceCondition]

class APIVersions(TypedDict, total=False):
    apiVersion: str
    kind: str
    serverAddressByClientCIDRs: Required[list[ServerAddressByClientCIDR]]
    versions: Required[list[str]]

class AWSElasticBlockStoreVolumeSource(TypedDict, total=False):
    fsType: str
    partition: int
    readOnly: bool
    volumeID: Required[str]

class Affinity(TypedDict, total=False):
    nodeAffinity: NodeAffinity
    podAffinity: PodAffinity
    podAntiAffinity: PodAntiAffinity

class AggregationRule(TypedDict, total=False):
    clusterRoleSelectors: list[LabelSelector]

class AllocatedDeviceStatus(TypedDict, total=False):
    conditions: list[Condition]
    data: Any
    device: Required[str]
    driver: Required[str]
    networkData: NetworkDeviceData
    pool: Required[str]
    shareID: str

class AllocationResult(TypedDict, total=False):
    allocationTimestamp: str
    devices: DeviceAllocationResult
    nodeSelector: NodeSelector

class ApiextensionsServiceReference(TypedDict, total=False):
    name: Required[str]
    namespace: Required[str]
    path: str
    port: int

class ApiextensionsWebhookClientConfig(TypedDict, total=False):
    caBundle: str
    service: ApiextensionsServiceReference
    url: str

class ApiregistrationServiceReference(TypedDict, total=False):
    name: str
    namespace: str
    port: int

class AppArmorProfile(TypedDict, total=False):
    localhostProfile: str
    type: Required[str]

class ApplyConfiguration(TypedDict, total=False):
    expression: str

class AttachedVolume(TypedDict, total=False):
    devicePath: Required[str]
    name: Required[str]

class AuditAnnotation(TypedDict, total=False):
    key: Required[str]
    valueExpression: Required[str]

class AzureDiskVolumeSource(TypedDict, total=False):
    cachingMode: str
    diskName: Required[str]
    diskURI: Required[str]
    fsType: str
    kind: str
    readOnly: bool

class AzureFilePersistentVolumeSource(TypedDict, total=False):
    readOnly: bool
    secretName: Required[str]
    secretNamespace: str
    shareName: Required[str]

class AzureFileVolumeSource(TypedDict, total=False):
    readOnly: bool
    secretName: Required[str]
    shareName: Required[str]

class BasicDevice(TypedDict, total=False):
    allNodes: bool
    allowMultipleAllocations: bool
    attributes: dict[str, DeviceAttribute]
    bindingConditions: list[str]
    bindingFailureConditions: list[str]
    bindsToNode: bool
    capacity: dict[str, DeviceCapacity]
    consumesCounters: list[DeviceCounterConsumption]
    nodeAllocatableResources: dict[str, NodeAllocatableResource]
    nodeName: str
    nodeSelector: NodeSelector
    taints: list[DeviceTaint]

class Binding(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: TemplateMeta
    target: Required[ObjectReference]

class BoundObjectReference(TypedDict, total=False):
    apiVersion: str
    kind: str
    name: str
    uid: str

class CELDeviceSelector(TypedDict, total=False):
    expression: Required[str]

class CSIDriver(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[CSIDriverSpec]

class CSIDriverList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[CSIDriver]]
    kind: str
    metadata: ListMeta

class CSIDriverSpec(TypedDict, total=False):
    attachRequired: bool
    fsGroupPolicy: str
    nodeAllocatableUpdatePeriodSeconds: int
    podInfoOnMount: bool
    preventPodSchedulingIfMissing: bool
    requiresRepublish: bool
    seLinuxMount: bool
    serviceAccountTokenInSecrets: bool
    storageCapacity: bool
    tokenRequests: list[StorageTokenRequest]
    volumeLifecycleModes: list[str]

class CSINode(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[CSINodeSpec]
    status: CSINodeStatus

class CSINodeDriver(TypedDict, total=False):
    allocatable: VolumeNodeResources
    name: Required[str]
    nodeID: Required[str]
    topologyKeys: list[str]

class CSINodeList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[CSINode]]
    kind: str
    metadata: ListMeta

class CSINodeSpec(TypedDict, total=False):
    drivers: Required[list[CSINodeDriver]]

class CSINodeStatus(TypedDict, total=False):
    storageHealth: list[StorageHealth]

class CSIPersistentVolumeSource(TypedDict, total=False):
    controllerExpandSecretRef: SecretReference
    controllerPublishSecretRef: SecretReference
    driver: Required[str]
    fsType: str
    nodeExpandSecretRef: SecretReference
    nodePublishSecretRef: SecretReference
    nodeStageSecretRef: SecretReference
    readOnly: bool
    volumeAttributes: dict[str, str]
    volumeHandle: Required[str]

class CSIStorageCapacity(TypedDict, total=False):
    apiVersion: str
    capacity: Quantity
    kind: str
    maximumVolumeSize: Quantity
    metadata: Required[ObjectMeta]
    nodeTopology: LabelSelector
    storageClassName: Required[str]

class CSIStorageCapacityList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[CSIStorageCapacity]]
    kind: str
    metadata: ListMeta

class CSIVolumeSource(TypedDict, total=False):
    driver: Required[str]
    fsType: str
    nodePublishSecretRef: LocalObjectReference
    readOnly: bool
    volumeAttributes: dict[str, str]

class Capabilities(TypedDict, total=False):
    add: list[str]
    drop: list[str]

class CapacityRequestPolicy(TypedDict, total=False):
    default: Quantity
    validRange: CapacityRequestPolicyRange
    validValues: list[Quantity]

class CapacityRequestPolicyRange(TypedDict, total=False):
    max: Quantity
    min: Required[Quantity]
    step: Quantity

class CapacityRequirements(TypedDict, total=False):
    requests: dict[str, Quantity]

class CephFSPersistentVolumeSource(TypedDict, total=False):
    monitors: Required[list[str]]
    path: str
    readOnly: bool
    secretFile: str
    secretRef: SecretReference
    user: str

class CephFSVolumeSource(TypedDict, total=False):
    monitors: Required[list[str]]
    path: str
    readOnly: bool
    secretFile: str
    secretRef: LocalObjectReference
    user: str

class CertificateSigningRequest(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[CertificateSigningRequestSpec]
    status: CertificateSigningRequestStatus

class CertificateSigningRequestCondition(TypedDict, total=False):
    lastTransitionTime: str
    lastUpdateTime: str
    message: str
    reason: str
    status: Required[str]
    type: Required[str]

class CertificateSigningRequestList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[CertificateSigningRequest]]
    kind: str
    metadata: ListMeta

class CertificateSigningRequestSpec(TypedDict, total=False):
    expirationSeconds: int
    extra: dict[str, list[str]]
    groups: list[str]
    request: Required[str]
    signerName: Required[str]
    uid: str
    usages: list[str]
    username: str

class CertificateSigningRequestStatus(TypedDict, total=False):
    certificate: str
    conditions: list[CertificateSigningRequestCondition]

class CinderPersistentVolumeSource(TypedDict, total=False):
    fsType: str
    readOnly: bool
    secretRef: SecretReference
    volumeID: Required[str]

class CinderVolumeSource(TypedDict, total=False):
    fsType: str
    readOnly: bool
    secretRef: LocalObjectReference
    volumeID: Required[str]

class ClientIPConfig(TypedDict, total=False):
    timeoutSeconds: int

class ClusterRole(TypedDict, total=False):
    aggregationRule: AggregationRule
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    rules: list[PolicyRule]

class ClusterRoleBinding(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    roleRef: Required[RoleRef]
    subjects: list[Subject]

class ClusterRoleBindingList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ClusterRoleBinding]]
    kind: str
    metadata: ListMeta

class ClusterRoleList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ClusterRole]]
    kind: str
    metadata: ListMeta

class ClusterTrustBundle(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[ClusterTrustBundleSpec]

class ClusterTrustBundleList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ClusterTrustBundle]]
    kind: str
    metadata: ListMeta

class ClusterTrustBundleProjection(TypedDict, total=False):
    labelSelector: LabelSelector
    name: str
    optional: bool
    path: Required[str]
    signerName: str
    user: int

class ClusterTrustBundleSpec(TypedDict, total=False):
    signerName: str
    trustBundle: Required[str]

class ComponentCondition(TypedDict, total=False):
    error: str
    message: str
    status: Required[str]
    type: Required[str]

class ComponentStatus(TypedDict, total=False):
    apiVersion: str
    conditions: list[ComponentCondition]
    kind: str
    metadata: Required[ObjectMeta]

class ComponentStatusList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ComponentStatus]]
    kind: str
    metadata: ListMeta

class CompositeDisruptionMode(TypedDict, total=False):
    all: dict[str, Any]
    single: dict[str, Any]

class CompositeGangSchedulingPolicy(TypedDict, total=False):
    minGroupCount: Required[int]

class CompositePodGroup(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[CompositePodGroupSpec]
    status: CompositePodGroupStatus

class CompositePodGroupList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[CompositePodGroup]]
    kind: str
    metadata: ListMeta

class CompositePodGroupSchedulingConstraints(TypedDict, total=False):
    topology: list[TopologyConstraint]

class CompositePodGroupSchedulingPolicy(TypedDict, total=False):
    basic: dict[str, Any]
    gang: CompositeGangSchedulingPolicy

class CompositePodGroupSpec(TypedDict, total=False):
    disruptionMode: CompositeDisruptionMode
    parentCompositePodGroupName: str
    preemptionPolicy: str
    priority: int
    priorityClassName: str
    schedulingConstraints: CompositePodGroupSchedulingConstraints
    schedulingPolicy: Required[CompositePodGroupSchedulingPolicy]
    workloadRef: Required[WorkloadReference]

class CompositePodGroupStatus(TypedDict, total=False):
    conditions: list[Condition]

class CompositePodGroupTemplate(TypedDict, total=False):
    compositePodGroupTemplates: list[CompositePodGroupTemplate]
    disruptionMode: CompositeDisruptionMode
    name: Required[str]
    podGroupTemplates: list[PodGroupTemplate]
    preemptionPolicy: str
    priority: int
    priorityClassName: str
    schedulingConstraints: CompositePodGroupSchedulingConstraints
    schedulingPolicy: Required[CompositePodGroupSchedulingPolicy]

class Condition(TypedDict, total=False):
    lastTransitionTime: Required[str]
    message: Required[str]
    observedGeneration: int
    reason: Required[str]
    status: Required[str]
    type: Required[str]

class ConfigMap(TypedDict, total=False):
    apiVersion: str
    binaryData: dict[str, str]
    data: dict[str, str]
    immutable: bool
    kind: str
    metadata: Required[ObjectMeta]

class ConfigMapEnvSource(TypedDict, total=False):
    name: str
    optional: bool

class ConfigMapKeySelector(TypedDict, total=False):
    key: Required[str]
    name: str
    optional: bool

class ConfigMapList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ConfigMap]]
    kind: str
    metadata: ListMeta

class ConfigMapNodeConfigSource(TypedDict, total=False):
    kubeletConfigKey: Required[str]
    name: Required[str]
    namespace: Required[str]
    resourceVersion: str
    uid: str

class ConfigMapProjection(TypedDict, total=False):
    items: list[KeyToPath]
    name: str
    optional: bool

class ConfigMapVolumeSource(TypedDict, total=False):
    defaultMode: int
    defaultUser: int
    items: list[KeyToPath]
    name: str
    optional: bool

class Container(TypedDict, total=False):
    args: list[str]
    command: list[str]
    env: list[EnvVar]
    envFrom: list[EnvFromSource]
    image: str
    imagePullPolicy: str
    lifecycle: Lifecycle
    livenessProbe: Probe
    name: Required[str]
    ports: list[ContainerPort]
    readinessProbe: Probe
    resizePolicy: list[ContainerResizePolicy]
    resources: ResourceRequirements
    restartPolicy: str
    restartPolicyRules: list[ContainerRestartRule]
    securityContext: SecurityContext
    startupProbe: Probe
    stdin: bool
    stdinOnce: bool
    terminationMessagePath: str
    terminationMessagePolicy: str
    tty: bool
    volumeDevices: list[VolumeDevice]
    volumeMounts: list[VolumeMount]
    workingDir: str

class ContainerExtendedResourceRequest(TypedDict, total=False):
    containerName: Required[str]
    requestName: Required[str]
    resourceName: Required[str]

class ContainerImage(TypedDict, total=False):
    names: list[str]
    sizeBytes: int

class ContainerPort(TypedDict, total=False):
    containerPort: Required[int]
    hostIP: str
    hostPort: int
    name: str
    protocol: str

class ContainerResizePolicy(TypedDict, total=False):
    resourceName: Required[str]
    restartPolicy: Required[str]

class ContainerResourceMetricSource(TypedDict, total=False):
    container: Required[str]
    name: Required[str]
    target: Required[MetricTarget]

class ContainerResourceMetricStatus(TypedDict, total=False):
    container: Required[str]
    current: Required[MetricValueStatus]
    name: Required[str]

class ContainerRestartRule(TypedDict, total=False):
    action: Required[str]
    exitCodes: ContainerRestartRuleOnExitCodes

class ContainerRestartRuleOnExitCodes(TypedDict, total=False):
    operator: Required[str]
    values: list[int]

class ContainerState(TypedDict, total=False):
    running: ContainerStateRunning
    terminated: ContainerStateTerminated
    waiting: ContainerStateWaiting

class ContainerStateRunning(TypedDict, total=False):
    startedAt: str

class ContainerStateTerminated(TypedDict, total=False):
    containerID: str
    exitCode: Required[int]
    finishedAt: str
    message: str
    reason: str
    signal: int
    startedAt: str

class ContainerStateWaiting(TypedDict, total=False):
    message: str
    reason: str

class ContainerStatus(TypedDict, total=False):
    allocatedResources: dict[str, Quantity]
    allocatedResourcesStatus: list[ResourceStatus]
    containerID: str
    image: Required[str]
    imageID: Required[str]
    lastState: ContainerState
    name: Required[str]
    ready: Required[bool]
    resources: ResourceRequirements
    restartCount: Required[int]
    started: bool
    state: ContainerState
    stopSignal: str
    user: ContainerUser
    volumeMounts: list[VolumeMountStatus]

class ContainerUser(TypedDict, total=False):
    linux: LinuxContainerUser

class ControllerRevision(TypedDict, total=False):
    apiVersion: str
    data: Required[Any]
    kind: str
    metadata: Required[ObjectMeta]
    revision: int

class ControllerRevisionList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ControllerRevision]]
    kind: str
    metadata: ListMeta

class CoreResourceClaim(TypedDict, total=False):
    name: Required[str]
    request: str

class Counter(TypedDict, total=False):
    value: Required[Quantity]

class CounterSet(TypedDict, total=False):
    counters: Required[dict[str, Counter]]
    name: Required[str]

class CronJob(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[CronJobSpec]
    status: CronJobStatus

class CronJobList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[CronJob]]
    kind: str
    metadata: ListMeta

class CronJobSpec(TypedDict, total=False):
    concurrencyPolicy: str
    failedJobsHistoryLimit: int
    jobTemplate: Required[JobTemplateSpec]
    schedule: Required[str]
    startingDeadlineSeconds: int
    successfulJobsHistoryLimit: int
    suspend: bool
    timeZone: str

class CronJobStatus(TypedDict, total=False):
    active: list[ObjectReference]
    lastScheduleTime: str
    lastSuccessfulTime: str

class CrossVersionObjectReference(TypedDict, total=False):
    apiVersion: str
    kind: Required[str]
    name: Required[str]

class CustomResourceColumnDefinition(TypedDict, total=False):
    description: str
    format: str
    jsonPath: Required[str]
    name: Required[str]
    priority: int
    type: Required[str]

class CustomResourceConversion(TypedDict, total=False):
    strategy: Required[str]
    webhook: WebhookConversion

class CustomResourceDefinition(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[CustomResourceDefinitionSpec]
    status: CustomResourceDefinitionStatus

class CustomResourceDefinitionCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    observedGeneration: int
    reason: str
    status: Required[str]
    type: Required[str]

class CustomResourceDefinitionList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[CustomResourceDefinition]]
    kind: str
    metadata: ListMeta

class CustomResourceDefinitionNames(TypedDict, total=False):
    categories: list[str]
    kind: Required[str]
    listKind: str
    plural: Required[str]
    shortNames: list[str]
    singular: str

class CustomResourceDefinitionSpec(TypedDict, total=False):
    conversion: CustomResourceConversion
    group: Required[str]
    names: Required[CustomResourceDefinitionNames]
    preserveUnknownFields: bool
    scope: Required[str]
    versions: Required[list[CustomResourceDefinitionVersion]]

class CustomResourceDefinitionStatus(TypedDict, total=False):
    acceptedNames: CustomResourceDefinitionNames
    conditions: list[CustomResourceDefinitionCondition]
    observedGeneration: int
    storedVersions: list[str]

class CustomResourceDefinitionVersion(TypedDict, total=False):
    additionalPrinterColumns: list[CustomResourceColumnDefinition]
    deprecated: bool
    deprecationWarning: str
    name: Required[str]
    schema: CustomResourceValidation
    selectableFields: list[SelectableField]
    served: Required[bool]
    storage: Required[bool]
    subresources: CustomResourceSubresources

class CustomResourceSubresourceScale(TypedDict, total=False):
    labelSelectorPath: str
    specReplicasPath: Required[str]
    statusReplicasPath: Required[str]

class CustomResourceSubresources(TypedDict, total=False):
    scale: CustomResourceSubresourceScale
    status: dict[str, Any]

class CustomResourceValidation(TypedDict, total=False):
    openAPIV3Schema: JSONSchemaProps

class DaemonEndpoint(TypedDict, total=False):
    Port: Required[int]

class DaemonSet(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[DaemonSetSpec]
    status: DaemonSetStatus

class DaemonSetCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    reason: str
    status: str
    type: str

class DaemonSetList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[DaemonSet]]
    kind: str
    metadata: ListMeta

class DaemonSetSpec(TypedDict, total=False):
    minReadySeconds: int
    revisionHistoryLimit: int
    selector: Required[LabelSelector]
    template: Required[PodTemplateSpec]
    updateStrategy: DaemonSetUpdateStrategy

class DaemonSetStatus(TypedDict, total=False):
    collisionCount: int
    conditions: list[DaemonSetCondition]
    currentNumberScheduled: int
    desiredNumberScheduled: int
    numberAvailable: int
    numberMisscheduled: int
    numberReady: int
    numberUnavailable: int
    observedGeneration: int
    updatedNumberScheduled: int

class DaemonSetUpdateStrategy(TypedDict, total=False):
    rollingUpdate: RollingUpdateDaemonSet
    type: str

class DeleteOptions(TypedDict, total=False):
    apiVersion: str
    dryRun: list[str]
    gracePeriodSeconds: int
    ignoreStoreReadErrorWithClusterBreakingPotential: bool
    kind: str
    orphanDependents: bool
    preconditions: Preconditions
    propagationPolicy: str

class Deployment(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[DeploymentSpec]
    status: DeploymentStatus

class DeploymentCondition(TypedDict, total=False):
    lastTransitionTime: str
    lastUpdateTime: str
    message: str
    reason: str
    status: str
    type: str

class DeploymentList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Deployment]]
    kind: str
    metadata: ListMeta

class DeploymentSpec(TypedDict, total=False):
    minReadySeconds: int
    paused: bool
    progressDeadlineSeconds: int
    replicas: int
    revisionHistoryLimit: int
    selector: Required[LabelSelector]
    strategy: DeploymentStrategy
    template: Required[PodTemplateSpec]

class DeploymentStatus(TypedDict, total=False):
    availableReplicas: int
    collisionCount: int
    conditions: list[DeploymentCondition]
    observedGeneration: int
    readyReplicas: int
    replicas: int
    terminatingReplicas: int
    unavailableReplicas: int
    updatedReplicas: int

class DeploymentStrategy(TypedDict, total=False):
    rollingUpdate: RollingUpdateDeployment
    type: str

class Device(TypedDict, total=False):
    allNodes: bool
    allowMultipleAllocations: bool
    attributes: dict[str, DeviceAttribute]
    bindingConditions: list[str]
    bindingFailureConditions: list[str]
    bindsToNode: bool
    capacity: dict[str, DeviceCapacity]
    consumesCounters: list[DeviceCounterConsumption]
    name: Required[str]
    nodeAllocatableResources: dict[str, NodeAllocatableResource]
    nodeName: str
    nodeSelector: NodeSelector
    taints: list[DeviceTaint]

class DeviceAllocationConfiguration(TypedDict, total=False):
    opaque: OpaqueDeviceConfiguration
    requests: list[str]
    source: Required[str]

class DeviceAllocationResult(TypedDict, total=False):
    config: list[DeviceAllocationConfiguration]
    results: list[DeviceRequestAllocationResult]

class DeviceAttribute(TypedDict, total=False):
    bool: bool
    bools: list[bool]
    int: int
    ints: list[int]
    string: str
    strings: list[str]
    version: str
    versions: list[str]

class DeviceCapacity(TypedDict, total=False):
    requestPolicy: CapacityRequestPolicy
    value: Required[Quantity]

class DeviceClaim(TypedDict, total=False):
    config: list[DeviceClaimConfiguration]
    constraints: list[DeviceConstraint]
    requests: list[DeviceRequest]

class DeviceClaimConfiguration(TypedDict, total=False):
    opaque: OpaqueDeviceConfiguration
    requests: list[str]

class DeviceClass(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: DeviceClassSpec

class DeviceClassConfiguration(TypedDict, total=False):
    opaque: OpaqueDeviceConfiguration

class DeviceClassList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[DeviceClass]]
    kind: str
    metadata: ListMeta

class DeviceClassSpec(TypedDict, total=False):
    config: list[DeviceClassConfiguration]
    extendedResourceName: str
    selectors: list[DeviceSelector]

class DeviceConstraint(TypedDict, total=False):
    distinctAttribute: str
    matchAttribute: str
    requests: list[str]

class DeviceCounterConsumption(TypedDict, total=False):
    compatibilityGroups: list[str]
    counterSet: Required[str]
    counters: Required[dict[str, Counter]]

class DeviceDerivedAttribute(TypedDict, total=False):
    expression: Required[str]
    name: Required[str]

class DeviceRequest(TypedDict, total=False):
    exactly: ExactDeviceRequest
    firstAvailable: list[DeviceSubRequest]
    name: Required[str]

class DeviceRequestAllocationResult(TypedDict, total=False):
    adminAccess: bool
    bindingConditions: list[str]
    bindingFailureConditions: list[str]
    consumedCapacity: dict[str, Quantity]
    device: Required[str]
    driver: Required[str]
    pool: Required[str]
    request: Required[str]
    shareID: str
    skipNodeOperations: list[str]
    tolerations: list[DeviceToleration]

class DeviceSelector(TypedDict, total=False):
    cel: CELDeviceSelector

class DeviceSubRequest(TypedDict, total=False):
    allocationMode: str
    capacity: CapacityRequirements
    count: int
    derivedAttributes: list[DeviceDerivedAttribute]
    deviceClassName: Required[str]
    name: Required[str]
    selectors: list[DeviceSelector]
    tolerations: list[DeviceToleration]

class DeviceTaint(TypedDict, total=False):
    effect: Required[str]
    key: Required[str]
    timeAdded: str
    value: str

class DeviceTaintRule(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[DeviceTaintRuleSpec]
    status: DeviceTaintRuleStatus

class DeviceTaintRuleList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[DeviceTaintRule]]
    kind: str
    metadata: ListMeta

class DeviceTaintRuleSpec(TypedDict, total=False):
    deviceSelector: DeviceTaintSelector
    taint: Required[DeviceTaint]

class DeviceTaintRuleStatus(TypedDict, total=False):
    conditions: list[Condition]

class DeviceTaintSelector(TypedDict, total=False):
    device: str
    driver: str
    pool: str

class DeviceToleration(TypedDict, total=False):
    effect: str
    key: str
    operator: str
    tolerationSeconds: int
    value: str

class DiscoveryEndpointPort(TypedDict, total=False):
    appProtocol: str
    name: str
    port: int
    protocol: str

class DisruptionMode(TypedDict, total=False):
    all: dict[str, Any]
    single: dict[str, Any]

class DownwardAPIProjection(TypedDict, total=False):
    items: list[DownwardAPIVolumeFile]

class DownwardAPIVolumeFile(TypedDict, total=False):
    fieldRef: ObjectFieldSelector
    mode: int
    path: Required[str]
    resourceFieldRef: ResourceFieldSelector
    user: int

class DownwardAPIVolumeSource(TypedDict, total=False):
    defaultMode: int
    defaultUser: int
    items: list[DownwardAPIVolumeFile]

class EmptyDirVolumeSource(TypedDict, total=False):
    medium: str
    mode: int
    sizeLimit: Quantity

class Endpoint(TypedDict, total=False):
    addresses: Required[list[str]]
    conditions: EndpointConditions
    deprecatedTopology: dict[str, str]
    hints: EndpointHints
    hostname: str
    nodeName: str
    targetRef: ObjectReference
    zone: str

class EndpointAddress(TypedDict, total=False):
    hostname: str
    ip: Required[str]
    nodeName: str
    targetRef: ObjectReference

class EndpointConditions(TypedDict, total=False):
    ready: bool
    serving: bool
    terminating: bool

class EndpointHints(TypedDict, total=False):
    forNodes: list[ForNode]
    forZones: list[ForZone]

class EndpointPort(TypedDict, total=False):
    appProtocol: str
    name: str
    port: Required[int]
    protocol: str

class EndpointSlice(TypedDict, total=False):
    addressType: Required[str]
    apiVersion: str
    endpoints: list[Endpoint]
    kind: str
    metadata: Required[ObjectMeta]
    ports: list[DiscoveryEndpointPort]

class EndpointSliceList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[EndpointSlice]]
    kind: str
    metadata: ListMeta

class EndpointSubset(TypedDict, total=False):
    addresses: list[EndpointAddress]
    notReadyAddresses: list[EndpointAddress]
    ports: list[EndpointPort]

class Endpoints(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    subsets: list[EndpointSubset]

class EndpointsList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Endpoints]]
    kind: str
    metadata: ListMeta

class EnvFromSource(TypedDict, total=False):
    configMapRef: ConfigMapEnvSource
    prefix: str
    secretRef: SecretEnvSource

class EnvVar(TypedDict, total=False):
    name: Required[str]
    value: str
    valueFrom: EnvVarSource

class EnvVarSource(TypedDict, total=False):
    configMapKeyRef: ConfigMapKeySelector
    fieldRef: ObjectFieldSelector
    fileKeyRef: FileKeySelector
    resourceFieldRef: ResourceFieldSelector
    secretKeyRef: SecretKeySelector

class EphemeralContainer(TypedDict, total=False):
    args: list[str]
    command: list[str]
    env: list[EnvVar]
    envFrom: list[EnvFromSource]
    image: str
    imagePullPolicy: str
    lifecycle: Lifecycle
    livenessProbe: Probe
    name: Required[str]
    ports: list[ContainerPort]
    readinessProbe: Probe
    resizePolicy: list[ContainerResizePolicy]
    resources: ResourceRequirements
    restartPolicy: str
    restartPolicyRules: list[ContainerRestartRule]
    securityContext: SecurityContext
    startupProbe: Probe
    stdin: bool
    stdinOnce: bool
    targetContainerName: str
    terminationMessagePath: str
    terminationMessagePolicy: str
    tty: bool
    volumeDevices: list[VolumeDevice]
    volumeMounts: list[VolumeMount]
    workingDir: str

class EphemeralVolumeSource(TypedDict, total=False):
    volumeClaimTemplate: PersistentVolumeClaimTemplate

class Event(TypedDict, total=False):
    action: str
    apiVersion: str
    count: int
    eventTime: str
    firstTimestamp: str
    involvedObject: Required[ObjectReference]
    kind: str
    lastTimestamp: str
    message: str
    metadata: Required[ObjectMeta]
    reason: str
    related: ObjectReference
    reportingComponent: str
    reportingInstance: str
    series: EventSeries
    source: EventSource
    type: str

class EventList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Event]]
    kind: str
    metadata: ListMeta

class EventSeries(TypedDict, total=False):
    count: int
    lastObservedTime: str

class EventSource(TypedDict, total=False):
    component: str
    host: str

class EventsEvent(TypedDict, total=False):
    action: str
    apiVersion: str
    deprecatedCount: int
    deprecatedFirstTimestamp: str
    deprecatedLastTimestamp: str
    deprecatedSource: EventSource
    eventTime: Required[str]
    kind: str
    metadata: Required[ObjectMeta]
    note: str
    reason: str
    regarding: ObjectReference
    related: ObjectReference
    reportingController: str
    reportingInstance: str
    series: EventsEventSeries
    type: str

class EventsEventList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[EventsEvent]]
    kind: str
    metadata: ListMeta

class EventsEventSeries(TypedDict, total=False):
    count: Required[int]
    lastObservedTime: Required[str]

class Eviction(TypedDict, total=False):
    apiVersion: str
    deleteOptions: DeleteOptions
    kind: str
    metadata: TemplateMeta

class EvictionList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[LifecycleEviction]]
    kind: str
    metadata: ListMeta

class EvictionPodReference(TypedDict, total=False):
    name: Required[str]
    uid: Required[str]

class EvictionRequest(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[EvictionRequestSpec]
    status: EvictionRequestStatus

class EvictionRequestList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[EvictionRequest]]
    kind: str
    metadata: ListMeta

class EvictionRequestPodReference(TypedDict, total=False):
    name: Required[str]
    uid: Required[str]

class EvictionRequestSpec(TypedDict, total=False):
    intent: Required[str]
    requester: Required[str]
    target: Required[EvictionRequestTarget]

class EvictionRequestStatus(TypedDict, total=False):
    conditions: list[Condition]
    observedGeneration: int

class EvictionRequestTarget(TypedDict, total=False):
    pod: EvictionRequestPodReference

class EvictionResponder(TypedDict, total=False):
    name: Required[str]
    priority: Required[int]

class EvictionSpec(TypedDict, total=False):
    target: Required[EvictionTarget]

class EvictionStatus(TypedDict, total=False):
    conditions: list[Condition]
    observedGeneration: int
    requesters: list[Requester]
    responders: list[ResponderStatus]
    targetResponders: list[TargetResponder]

class EvictionTarget(TypedDict, total=False):
    pod: EvictionPodReference

class ExactDeviceRequest(TypedDict, total=False):
    adminAccess: bool
    allocationMode: str
    capacity: CapacityRequirements
    count: int
    derivedAttributes: list[DeviceDerivedAttribute]
    deviceClassName: Required[str]
    selectors: list[DeviceSelector]
    tolerations: list[DeviceToleration]

class ExecAction(TypedDict, total=False):
    command: list[str]

class ExemptPriorityLevelConfiguration(TypedDict, total=False):
    lendablePercent: int
    nominalConcurrencyShares: int

class ExpressionWarning(TypedDict, total=False):
    fieldRef: Required[str]
    warning: Required[str]

class ExternalDocumentation(TypedDict, total=False):
    description: str
    url: str

class ExternalMetricSource(TypedDict, total=False):
    metric: Required[MetricIdentifier]
    target: Required[MetricTarget]

class ExternalMetricStatus(TypedDict, total=False):
    current: Required[MetricValueStatus]
    metric: Required[MetricIdentifier]

class FCVolumeSource(TypedDict, total=False):
    fsType: str
    lun: int
    readOnly: bool
    targetWWNs: list[str]
    wwids: list[str]

class FieldSelectorAttributes(TypedDict, total=False):
    rawSelector: str
    requirements: list[FieldSelectorRequirement]

class FieldSelectorRequirement(TypedDict, total=False):
    key: Required[str]
    operator: Required[str]
    values: list[str]

class FileKeySelector(TypedDict, total=False):
    key: Required[str]
    optional: bool
    path: Required[str]
    volumeName: Required[str]

class FlexPersistentVolumeSource(TypedDict, total=False):
    driver: Required[str]
    fsType: str
    options: dict[str, str]
    readOnly: bool
    secretRef: SecretReference

class FlexVolumeSource(TypedDict, total=False):
    driver: Required[str]
    fsType: str
    options: dict[str, str]
    readOnly: bool
    secretRef: LocalObjectReference

class FlockerVolumeSource(TypedDict, total=False):
    datasetName: str
    datasetUUID: str

class FlowDistinguisherMethod(TypedDict, total=False):
    type: Required[str]

class FlowSchema(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[FlowSchemaSpec]
    status: FlowSchemaStatus

class FlowSchemaCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    reason: str
    status: str
    type: Required[str]

class FlowSchemaList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[FlowSchema]]
    kind: str
    metadata: ListMeta

class FlowSchemaSpec(TypedDict, total=False):
    distinguisherMethod: FlowDistinguisherMethod
    matchingPrecedence: int
    priorityLevelConfiguration: Required[PriorityLevelConfigurationReference]
    rules: list[PolicyRulesWithSubjects]

class FlowSchemaStatus(TypedDict, total=False):
    conditions: list[FlowSchemaCondition]

class FlowcontrolSubject(TypedDict, total=False):
    group: GroupSubject
    kind: Required[str]
    serviceAccount: ServiceAccountSubject
    user: UserSubject

class ForNode(TypedDict, total=False):
    name: Required[str]

class ForZone(TypedDict, total=False):
    name: Required[str]

class GCEPersistentDiskVolumeSource(TypedDict, total=False):
    fsType: str
    partition: int
    pdName: Required[str]
    readOnly: bool

class GRPCAction(TypedDict, total=False):
    mode: str
    port: Required[int]
    service: str

class GangSchedulingPolicy(TypedDict, total=False):
    minCount: Required[int]

class GitRepoVolumeSource(TypedDict, total=False):
    directory: str
    repository: Required[str]
    revision: str

class GlusterfsPersistentVolumeSource(TypedDict, total=False):
    endpoints: Required[str]
    endpointsNamespace: str
    path: Required[str]
    readOnly: bool

class GlusterfsVolumeSource(TypedDict, total=False):
    endpoints: Required[str]
    path: Required[str]
    readOnly: bool

class GroupResource(TypedDict, total=False):
    group: Required[str]
    resource: Required[str]

class GroupSubject(TypedDict, total=False):
    name: Required[str]

class GroupVersionForDiscovery(TypedDict, total=False):
    groupVersion: Required[str]
    version: Required[str]

class HPAScalingPolicy(TypedDict, total=False):
    periodSeconds: Required[int]
    type: Required[str]
    value: Required[int]

class HPAScalingRules(TypedDict, total=False):
    policies: list[HPAScalingPolicy]
    selectPolicy: str
    stabilizationWindowSeconds: int
    tolerance: Quantity

class HTTPGetAction(TypedDict, total=False):
    host: str
    httpHeaders: list[HTTPHeader]
    path: str
    port: Required[int | str]
    protocol: str
    scheme: str

class HTTPHeader(TypedDict, total=False):
    name: Required[str]
    value: Required[str]

class HTTPIngressPath(TypedDict, total=False):
    backend: Required[IngressBackend]
    path: str
    pathType: Required[str]

class HTTPIngressRuleValue(TypedDict, total=False):
    paths: Required[list[HTTPIngressPath]]

class HorizontalPodAutoscaler(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[HorizontalPodAutoscalerSpec]
    status: HorizontalPodAutoscalerStatus

class HorizontalPodAutoscalerBehavior(TypedDict, total=False):
    scaleDown: HPAScalingRules
    scaleUp: HPAScalingRules

class HorizontalPodAutoscalerCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    observedGeneration: int
    reason: str
    status: Required[str]
    type: Required[str]

class HorizontalPodAutoscalerList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[HorizontalPodAutoscaler]]
    kind: str
    metadata: ListMeta

class HorizontalPodAutoscalerSpec(TypedDict, total=False):
    behavior: HorizontalPodAutoscalerBehavior
    maxReplicas: Required[int]
    metrics: list[MetricSpec]
    minReplicas: int
    scaleTargetRef: Required[CrossVersionObjectReference]

class HorizontalPodAutoscalerStatus(TypedDict, total=False):
    conditions: list[HorizontalPodAutoscalerCondition]
    currentMetrics: list[MetricStatus]
    currentReplicas: int
    desiredReplicas: int
    lastScaleTime: str
    observedGeneration: int

class HostAlias(TypedDict, total=False):
    hostnames: list[str]
    ip: Required[str]

class HostIP(TypedDict, total=False):
    ip: Required[str]

class HostPathVolumeSource(TypedDict, total=False):
    path: Required[str]
    type: str

class IPAddress(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[IPAddressSpec]

class IPAddressList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[IPAddress]]
    kind: str
    metadata: ListMeta

class IPAddressSpec(TypedDict, total=False):
    parentRef: Required[ParentReference]

IPBlock = TypedDict(
    "IPBlock",
    {
        "cidr": Required[str],
        "except": list[str],
    },
    total=False,
)

class ISCSIPersistentVolumeSource(TypedDict, total=False):
    chapAuthDiscovery: bool
    chapAuthSession: bool
    fsType: str
    initiatorName: str
    iqn: Required[str]
    iscsiInterface: str
    lun: Required[int]
    portals: list[str]
    readOnly: bool
    secretRef: SecretReference
    targetPortal: Required[str]

class ISCSIVolumeSource(TypedDict, total=False):
    chapAuthDiscovery: bool
    chapAuthSession: bool
    fsType: str
    initiatorName: str
    iqn: Required[str]
    iscsiInterface: str
    lun: Required[int]
    portals: list[str]
    readOnly: bool
    secretRef: LocalObjectReference
    targetPortal: Required[str]

class ImageVolumeSource(TypedDict, total=False):
    pullPolicy: str
    reference: str

class ImageVolumeStatus(TypedDict, total=False):
    imageRef: Required[str]

class Info(TypedDict, total=False):
    buildDate: Required[str]
    compiler: Required[str]
    emulationMajor: str
    emulationMinor: str
    gitCommit: Required[str]
    gitTreeState: Required[str]
    gitVersion: Required[str]
    goVersion: Required[str]
    major: Required[str]
    minCompatibilityMajor: str
    minCompatibilityMinor: str
    minor: Required[str]
    platform: Required[str]

class Ingress(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: IngressSpec
    status: IngressStatus

class IngressBackend(TypedDict, total=False):
    resource: TypedLocalObjectReference
    service: IngressServiceBackend

class IngressClass(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: IngressClassSpec

class IngressClassList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[IngressClass]]
    kind: str
    metadata: ListMeta

class IngressClassParametersReference(TypedDict, total=False):
    apiGroup: str
    kind: Required[str]
    name: Required[str]
    namespace: str
    scope: str

class IngressClassSpec(TypedDict, total=False):
    controller: str
    parameters: IngressClassParametersReference

class IngressList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Ingress]]
    kind: str
    metadata: ListMeta

class IngressLoadBalancerIngress(TypedDict, total=False):
    hostname: str
    ip: str
    ports: list[IngressPortStatus]

class IngressLoadBalancerStatus(TypedDict, total=False):
    ingress: list[IngressLoadBalancerIngress]

class IngressPortStatus(TypedDict, total=False):
    error: str
    port: Required[int]
    protocol: Required[str]

class IngressRule(TypedDict, total=False):
    host: str
    http: HTTPIngressRuleValue

class IngressServiceBackend(TypedDict, total=False):
    name: Required[str]
    port: ServiceBackendPort

class IngressSpec(TypedDict, total=False):
    defaultBackend: IngressBackend
    ingressClassName: str
    rules: list[IngressRule]
    tls: list[IngressTLS]

class IngressStatus(TypedDict, total=False):
    loadBalancer: IngressLoadBalancerStatus

class IngressTLS(TypedDict, total=False):
    hosts: list[str]
    secretName: str

class JSONPatch(TypedDict, total=False):
    expression: str

JSONSchemaProps = TypedDict(
    "JSONSchemaProps",
    {
        "$ref": str,
        "$schema": str,
        "additionalItems": Any,
        "additionalProperties": Any,
        "allOf": list[JSONSchemaProps],
        "anyOf": list[JSONSchemaProps],
        "default": Any,
        "definitions": dict[str, JSONSchemaProps],
        "dependencies": dict[str, Any],
        "description": str,
        "enum": list[Any],
        "example": Any,
        "exclusiveMaximum": bool,
        "exclusiveMinimum": bool,
        "externalDocs": ExternalDocumentation,
        "format": str,
        "id": str,
        "items": Any,
        "maxItems": int,
        "maxLength": int,
        "maxProperties": int,
        "maximum": float,
        "minItems": int,
        "minLength": int,
        "minProperties": int,
        "minimum": float,
        "multipleOf": float,
        "not": JSONSchemaProps,
        "nullable": bool,
        "oneOf": list[JSONSchemaProps],
        "pattern": str,
        "patternProperties": dict[str, JSONSchemaProps],
        "properties": dict[str, JSONSchemaProps],
        "required": list[str],
        "title": str,
        "type": str,
        "uniqueItems": bool,
        "x-kubernetes-embedded-resource": bool,
        "x-kubernetes-int-or-string": bool,
        "x-kubernetes-list-map-keys": list[str],
        "x-kubernetes-list-type": str,
        "x-kubernetes-map-type": str,
        "x-kubernetes-preserve-unknown-fields": bool,
        "x-kubernetes-validations": list[ValidationRule],
    },
    total=False,
)

class Job(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[JobSpec]
    status: JobStatus

class JobCondition(TypedDict, total=False):
    lastProbeTime: str
    lastTransitionTime: str
    message: str
    reason: str
    status: Required[str]
    type: Required[str]

class JobList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Job]]
    kind: str
    metadata: ListMeta

class JobSchedulingConfiguration(TypedDict, total=False):
    disruptionMode: WorkloadPodGroupDisruptionMode
    resourceClaims: list[WorkloadPodGroupResourceClaim]
    schedulingConstraints: WorkloadPodGroupSchedulingConstraints
    schedulingPolicy: WorkloadPodGroupSchedulingPolicy

class JobSpec(TypedDict, total=False):
    activeDeadlineSeconds: int
    backoffLimit: int
    backoffLimitPerIndex: int
    completionMode: str
    completions: int
    managedBy: str
    manualSelector: bool
    maxFailedIndexes: int
    parallelism: int
    podFailurePolicy: PodFailurePolicy
    podReplacementPolicy: str
    scheduling: JobSchedulingConfiguration
    selector: LabelSelector
    successPolicy: SuccessPolicy
    suspend: bool
    template: Required[PodTemplateSpec]
    ttlSecondsAfterFinished: int

class JobStatus(TypedDict, total=False):
    active: int
    completedIndexes: str
    completionTime: str
    conditions: list[JobCondition]
    failed: int
    failedIndexes: str
    ready: int
    startTime: str
    succeeded: int
    terminating: int
    uncountedTerminatedPods: UncountedTerminatedPods

class JobTemplateSpec(TypedDict, total=False):
    metadata: TemplateMeta
    spec: Required[JobSpec]

class KeyToPath(TypedDict, total=False):
    key: Required[str]
    mode: int
    path: Required[str]
    user: int

class LabelSelector(TypedDict, total=False):
    matchExpressions: list[LabelSelectorRequirement]
    matchLabels: dict[str, str]

class LabelSelectorAttributes(TypedDict, total=False):
    rawSelector: str
    requirements: list[LabelSelectorRequirement]

class LabelSelectorRequirement(TypedDict, total=False):
    key: Required[str]
    operator: Required[str]
    values: list[str]

class Lease(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: LeaseSpec

class LeaseCandidate(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[LeaseCandidateSpec]

class LeaseCandidateList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[LeaseCandidate]]
    kind: str
    metadata: ListMeta

class LeaseCandidateSpec(TypedDict, total=False):
    binaryVersion: Required[str]
    emulationVersion: str
    leaseName: Required[str]
    pingTime: str
    renewTime: str
    strategy: Required[str]

class LeaseList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Lease]]
    kind: str
    metadata: ListMeta

class LeaseSpec(TypedDict, total=False):
    acquireTime: str
    holderIdentity: str
    leaseDurationSeconds: int
    leaseTransitions: int
    preferredHolder: str
    renewTime: str
    strategy: str

class Lifecycle(TypedDict, total=False):
    postStart: LifecycleHandler
    preStop: LifecycleHandler
    stopSignal: str

class LifecycleEviction(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[EvictionSpec]
    status: EvictionStatus

class LifecycleHandler(TypedDict, total=False):
    exec: ExecAction
    httpGet: HTTPGetAction
    sleep: SleepAction
    tcpSocket: TCPSocketAction

class LimitRange(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[LimitRangeSpec]

class LimitRangeItem(TypedDict, total=False):
    default: dict[str, Quantity]
    defaultRequest: dict[str, Quantity]
    max: dict[str, Quantity]
    maxLimitRequestRatio: dict[str, Quantity]
    min: dict[str, Quantity]
    type: Required[str]

class LimitRangeList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[LimitRange]]
    kind: str
    metadata: ListMeta

class LimitRangeSpec(TypedDict, total=False):
    limits: Required[list[LimitRangeItem]]

class LimitResponse(TypedDict, total=False):
    queuing: QueuingConfiguration
    type: Required[str]

class LimitedPriorityLevelConfiguration(TypedDict, total=False):
    borrowingLimitPercent: int
    lendablePercent: int
    limitResponse: Required[LimitResponse]
    nominalConcurrencyShares: int

class LinuxContainerUser(TypedDict, total=False):
    gid: Required[int]
    supplementalGroups: list[int]
    uid: Required[int]

ListMeta = TypedDict(
    "ListMeta",
    {
        "continue": str,
        "remainingItemCount": int,
        "resourceVersion": str,
        "selfLink": str,
        "shardInfo": ShardInfo,
    },
    total=False,
)

class LoadBalancerIngress(TypedDict, total=False):
    hostname: str
    ip: str
    ipMode: str
    ports: list[PortStatus]

class LoadBalancerStatus(TypedDict, total=False):
    ingress: list[LoadBalancerIngress]

class LocalObjectReference(TypedDict, total=False):
    name: str

class LocalSubjectAccessReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: TemplateMeta
    spec: Required[SubjectAccessReviewSpec]
    status: SubjectAccessReviewStatus

class LocalVolumeSource(TypedDict, total=False):
    fsType: str
    path: Required[str]

class ManagedFieldsEntry(TypedDict, total=False):
    apiVersion: str
    fieldsType: str
    fieldsV1: dict[str, Any]
    manager: str
    operation: str
    subresource: str
    time: str

class MatchCondition(TypedDict, total=False):
    expression: Required[str]
    name: Required[str]

class MatchResources(TypedDict, total=False):
    excludeResourceRules: list[NamedRuleWithOperations]
    matchPolicy: str
    namespaceSelector: LabelSelector
    objectSelector: LabelSelector
    resourceRules: list[NamedRuleWithOperations]

class MetricIdentifier(TypedDict, total=False):
    name: Required[str]
    selector: LabelSelector

class MetricSpec(TypedDict, total=False):
    containerResource: ContainerResourceMetricSource
    external: ExternalMetricSource
    object: ObjectMetricSource
    pods: PodsMetricSource
    resource: ResourceMetricSource
    type: Required[str]

class MetricStatus(TypedDict, total=False):
    containerResource: ContainerResourceMetricStatus
    external: ExternalMetricStatus
    object: ObjectMetricStatus
    pods: PodsMetricStatus
    resource: ResourceMetricStatus
    type: Required[str]

class MetricTarget(TypedDict, total=False):
    averageUtilization: int
    averageValue: Quantity
    type: Required[str]
    value: Quantity

class MetricValueStatus(TypedDict, total=False):
    averageUtilization: int
    averageValue: Quantity
    value: Quantity

class ModifyVolumeStatus(TypedDict, total=False):
    status: Required[str]
    targetVolumeAttributesClassName: str

class MutatingAdmissionPolicy(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: MutatingAdmissionPolicySpec

class MutatingAdmissionPolicyBinding(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: MutatingAdmissionPolicyBindingSpec

class MutatingAdmissionPolicyBindingList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[MutatingAdmissionPolicyBinding]]
    kind: str
    metadata: ListMeta

class MutatingAdmissionPolicyBindingSpec(TypedDict, total=False):
    matchResources: MatchResources
    paramRef: ParamRef
    policyName: str

class MutatingAdmissionPolicyList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[MutatingAdmissionPolicy]]
    kind: str
    metadata: ListMeta

class MutatingAdmissionPolicySpec(TypedDict, total=False):
    failurePolicy: str
    matchConditions: list[MatchCondition]
    matchConstraints: MatchResources
    mutations: list[Mutation]
    paramKind: ParamKind
    reinvocationPolicy: str
    variables: list[Variable]

class MutatingWebhook(TypedDict, total=False):
    admissionReviewVersions: Required[list[str]]
    clientConfig: Required[WebhookClientConfig]
    failurePolicy: str
    matchConditions: list[MatchCondition]
    matchPolicy: str
    name: Required[str]
    namespaceSelector: LabelSelector
    objectSelector: LabelSelector
    reinvocationPolicy: str
    rules: list[RuleWithOperations]
    sideEffects: Required[str]
    timeoutSeconds: int

class MutatingWebhookConfiguration(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    webhooks: list[MutatingWebhook]

class MutatingWebhookConfigurationList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[MutatingWebhookConfiguration]]
    kind: str
    metadata: ListMeta

class Mutation(TypedDict, total=False):
    applyConfiguration: ApplyConfiguration
    jsonPatch: JSONPatch
    patchType: Required[str]

class NFSVolumeSource(TypedDict, total=False):
    path: Required[str]
    readOnly: bool
    server: Required[str]

class NamedRuleWithOperations(TypedDict, total=False):
    apiGroups: list[str]
    apiVersions: list[str]
    operations: list[str]
    resourceNames: list[str]
    resources: list[str]
    scope: str

class Namespace(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: NamespaceSpec
    status: NamespaceStatus

class NamespaceCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    reason: str
    status: Required[str]
    type: Required[str]

class NamespaceList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Namespace]]
    kind: str
    metadata: ListMeta

class NamespaceSpec(TypedDict, total=False):
    finalizers: list[str]

class NamespaceStatus(TypedDict, total=False):
    conditions: list[NamespaceCondition]
    phase: str

class NetworkDeviceData(TypedDict, total=False):
    hardwareAddress: str
    interfaceName: str
    ips: list[str]

class NetworkPolicy(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: NetworkPolicySpec

class NetworkPolicyEgressRule(TypedDict, total=False):
    ports: list[NetworkPolicyPort]
    to: list[NetworkPolicyPeer]

NetworkPolicyIngressRule = TypedDict(
    "NetworkPolicyIngressRule",
    {
        "from": list[NetworkPolicyPeer],
        "ports": list[NetworkPolicyPort],
    },
    total=False,
)

class NetworkPolicyList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[NetworkPolicy]]
    kind: str
    metadata: ListMeta

class NetworkPolicyPeer(TypedDict, total=False):
    ipBlock: IPBlock
    namespaceSelector: LabelSelector
    podSelector: LabelSelector

class NetworkPolicyPort(TypedDict, total=False):
    endPort: int
    port: int | str
    protocol: str

class NetworkPolicySpec(TypedDict, total=False):
    egress: list[NetworkPolicyEgressRule]
    ingress: list[NetworkPolicyIngressRule]
    podSelector: LabelSelector
    policyTypes: list[str]

class Node(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: NodeSpec
    status: NodeStatus

class NodeAddress(TypedDict, total=False):
    address: Required[str]
    type: Required[str]

class NodeAffinity(TypedDict, total=False):
    preferredDuringSchedulingIgnoredDuringExecution: list[PreferredSchedulingTerm]
    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector

class NodeAllocatableMappedResources(TypedDict, total=False):
    name: Required[str]
    quantity: Required[Quantity]

class NodeAllocatableMapping(TypedDict, total=False):
    capacityKey: str
    capacityMultiplier: Quantity
    deviceMultiplier: Quantity

class NodeAllocatableOverhead(TypedDict, total=False):
    perContainer: Quantity
    perPod: Quantity

class NodeAllocatableOverheadResources(TypedDict, total=False):
    name: Required[str]
    perContainer: Quantity
    perPod: Quantity

class NodeAllocatableResource(TypedDict, total=False):
    mapping: NodeAllocatableMapping
    overhead: NodeAllocatableOverhead

class NodeAllocatableResourceClaimStatus(TypedDict, total=False):
    containers: list[str]
    mapping: list[NodeAllocatableMappedResources]
    overhead: list[NodeAllocatableOverheadResources]
    resourceClaimName: Required[str]

class NodeCondition(TypedDict, total=False):
    lastHeartbeatTime: str
    lastTransitionTime: str
    message: str
    reason: str
    status: Required[str]
    type: Required[str]

class NodeConfigSource(TypedDict, total=False):
    configMap: ConfigMapNodeConfigSource

class NodeConfigStatus(TypedDict, total=False):
    active: NodeConfigSource
    assigned: NodeConfigSource
    error: str
    lastKnownGood: NodeConfigSource

class NodeDaemonEndpoints(TypedDict, total=False):
    kubeletEndpoint: DaemonEndpoint

class NodeFeatures(TypedDict, total=False):
    supplementalGroupsPolicy: bool

class NodeList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Node]]
    kind: str
    metadata: ListMeta

class NodePodPreemptionPolicy(TypedDict, total=False):
    disableResizePreemption: list[str]

class NodeRuntimeHandler(TypedDict, total=False):
    features: NodeRuntimeHandlerFeatures
    name: str

class NodeRuntimeHandlerFeatures(TypedDict, total=False):
    recursiveReadOnlyMounts: bool
    userNamespaces: bool

class NodeSelector(TypedDict, total=False):
    nodeSelectorTerms: Required[list[NodeSelectorTerm]]

class NodeSelectorRequirement(TypedDict, total=False):
    key: Required[str]
    operator: Required[str]
    values: list[str]

class NodeSelectorTerm(TypedDict, total=False):
    matchExpressions: list[NodeSelectorRequirement]
    matchFields: list[NodeSelectorRequirement]

class NodeSpec(TypedDict, total=False):
    configSource: NodeConfigSource
    externalID: str
    podCIDR: str
    podCIDRs: list[str]
    podPreemptionPolicy: NodePodPreemptionPolicy
    providerID: str
    taints: list[Taint]
    unschedulable: bool

class NodeStatus(TypedDict, total=False):
    addresses: list[NodeAddress]
    allocatable: dict[str, Quantity]
    capacity: dict[str, Quantity]
    conditions: list[NodeCondition]
    config: NodeConfigStatus
    daemonEndpoints: NodeDaemonEndpoints
    declaredFeatures: list[str]
    features: NodeFeatures
    images: list[ContainerImage]
    nodeInfo: NodeSystemInfo
    phase: str
    runtimeHandlers: list[NodeRuntimeHandler]
    volumesAttached: list[AttachedVolume]
    volumesInUse: list[str]

class NodeSwapStatus(TypedDict, total=False):
    capacity: int

class NodeSystemInfo(TypedDict, total=False):
    architecture: Required[str]
    bootID: Required[str]
    containerRuntimeVersion: Required[str]
    kernelVersion: Required[str]
    kubeProxyVersion: Required[str]
    kubeletVersion: Required[str]
    machineID: Required[str]
    operatingSystem: Required[str]
    osImage: Required[str]
    runningInUserNamespace: bool
    swap: NodeSwapStatus
    systemUUID: Required[str]

class NonResourceAttributes(TypedDict, total=False):
    path: str
    verb: str

class NonResourcePolicyRule(TypedDict, total=False):
    nonResourceURLs: Required[list[str]]
    verbs: Required[list[str]]

class NonResourceRule(TypedDict, total=False):
    nonResourceURLs: list[str]
    verbs: Required[list[str]]

class ObjectFieldSelector(TypedDict, total=False):
    apiVersion: str
    fieldPath: Required[str]

class ObjectMeta(TypedDict, total=False):
    annotations: dict[str, str]
    creationTimestamp: str
    deletionGracePeriodSeconds: int
    deletionTimestamp: str
    finalizers: list[str]
    generateName: str
    generation: int
    labels: dict[str, str]
    managedFields: list[ManagedFieldsEntry]
    name: Required[str]
    namespace: str
    ownerReferences: list[OwnerReference]
    resourceVersion: str
    selfLink: str
    uid: str

class ObjectMetricSource(TypedDict, total=False):
    describedObject: Required[CrossVersionObjectReference]
    metric: Required[MetricIdentifier]
    target: Required[MetricTarget]

class ObjectMetricStatus(TypedDict, total=False):
    current: Required[MetricValueStatus]
    describedObject: Required[CrossVersionObjectReference]
    metric: Required[MetricIdentifier]

class ObjectReference(TypedDict, total=False):
    apiVersion: str
    fieldPath: str
    kind: str
    name: str
    namespace: str
    resourceVersion: str
    uid: str

class OpaqueDeviceConfiguration(TypedDict, total=False):
    driver: Required[str]
    parameters: Required[Any]

class Overhead(TypedDict, total=False):
    podFixed: dict[str, Quantity]

class OwnerReference(TypedDict, total=False):
    apiVersion: Required[str]
    blockOwnerDeletion: bool
    controller: bool
    kind: Required[str]
    name: Required[str]
    uid: Required[str]

class ParamKind(TypedDict, total=False):
    apiVersion: str
    kind: str

class ParamRef(TypedDict, total=False):
    name: str
    namespace: str
    parameterNotFoundAction: str
    selector: LabelSelector

class ParentReference(TypedDict, total=False):
    group: str
    name: Required[str]
    namespace: str
    resource: Required[str]

class PartitionTypeStatus(TypedDict, total=False):
    allocatable: Required[int]
    attribute: Required[str]
    total: Required[int]
    type: Required[str]

class PersistentVolume(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: PersistentVolumeSpec
    status: PersistentVolumeStatus

class PersistentVolumeClaim(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: PersistentVolumeClaimSpec
    status: PersistentVolumeClaimStatus

class PersistentVolumeClaimCondition(TypedDict, total=False):
    lastProbeTime: str
    lastTransitionTime: str
    message: str
    reason: str
    status: Required[str]
    type: Required[str]

class PersistentVolumeClaimList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[PersistentVolumeClaim]]
    kind: str
    metadata: ListMeta

class PersistentVolumeClaimSpec(TypedDict, total=False):
    accessModes: list[str]
    dataSource: TypedLocalObjectReference
    dataSourceRef: TypedObjectReference
    resources: VolumeResourceRequirements
    selector: LabelSelector
    storageClassName: str
    volumeAttributesClassName: str
    volumeMode: str
    volumeName: str

class PersistentVolumeClaimStatus(TypedDict, total=False):
    accessModes: list[str]
    allocatedResourceStatuses: dict[str, str]
    allocatedResources: dict[str, Quantity]
    capacity: dict[str, Quantity]
    conditions: list[PersistentVolumeClaimCondition]
    currentVolumeAttributesClassName: str
    healthStatus: VolumeHealthStatus
    modifyVolumeStatus: ModifyVolumeStatus
    phase: str

class PersistentVolumeClaimTemplate(TypedDict, total=False):
    metadata: TemplateMeta
    spec: Required[PersistentVolumeClaimSpec]

class PersistentVolumeClaimVolumeSource(TypedDict, total=False):
    claimName: Required[str]
    readOnly: bool

class PersistentVolumeList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[PersistentVolume]]
    kind: str
    metadata: ListMeta

class PersistentVolumeSpec(TypedDict, total=False):
    accessModes: list[str]
    awsElasticBlockStore: AWSElasticBlockStoreVolumeSource
    azureDisk: AzureDiskVolumeSource
    azureFile: AzureFilePersistentVolumeSource
    capacity: dict[str, Quantity]
    cephfs: CephFSPersistentVolumeSource
    cinder: CinderPersistentVolumeSource
    claimRef: ObjectReference
    csi: CSIPersistentVolumeSource
    fc: FCVolumeSource
    flexVolume: FlexPersistentVolumeSource
    flocker: FlockerVolumeSource
    gcePersistentDisk: GCEPersistentDiskVolumeSource
    glusterfs: GlusterfsPersistentVolumeSource
    hostPath: HostPathVolumeSource
    iscsi: ISCSIPersistentVolumeSource
    local: LocalVolumeSource
    mountOptions: list[str]
    nfs: NFSVolumeSource
    nodeAffinity: VolumeNodeAffinity
    persistentVolumeReclaimPolicy: str
    photonPersistentDisk: PhotonPersistentDiskVolumeSource
    portworxVolume: PortworxVolumeSource
    quobyte: QuobyteVolumeSource
    rbd: RBDPersistentVolumeSource
    scaleIO: ScaleIOPersistentVolumeSource
    storageClassName: str
    storageos: StorageOSPersistentVolumeSource
    volumeAttributesClassName: str
    volumeMode: str
    vsphereVolume: VsphereVirtualDiskVolumeSource

class PersistentVolumeStatus(TypedDict, total=False):
    lastPhaseTransitionTime: str
    message: str
    phase: str
    reason: str

class PhotonPersistentDiskVolumeSource(TypedDict, total=False):
    fsType: str
    pdID: Required[str]

class Pod(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[PodSpec]
    status: PodStatus

class PodAffinity(TypedDict, total=False):
    preferredDuringSchedulingIgnoredDuringExecution: list[WeightedPodAffinityTerm]
    requiredDuringSchedulingIgnoredDuringExecution: list[PodAffinityTerm]

class PodAffinityTerm(TypedDict, total=False):
    labelSelector: LabelSelector
    matchLabelKeys: list[str]
    mismatchLabelKeys: list[str]
    namespaceSelector: LabelSelector
    namespaces: list[str]
    topologyKey: Required[str]

class PodAntiAffinity(TypedDict, total=False):
    preferredDuringSchedulingIgnoredDuringExecution: list[WeightedPodAffinityTerm]
    requiredDuringSchedulingIgnoredDuringExecution: list[PodAffinityTerm]

class PodCertificateProjection(TypedDict, total=False):
    certificateChainPath: str
    credentialBundlePath: str
    keyPath: str
    keyType: Required[str]
    maxExpirationSeconds: int
    signerName: Required[str]
    user: int
    userAnnotations: dict[str, str]

class PodCertificateRequest(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[PodCertificateRequestSpec]
    status: PodCertificateRequestStatus

class PodCertificateRequestList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[PodCertificateRequest]]
    kind: str
    metadata: ListMeta

class PodCertificateRequestSpec(TypedDict, total=False):
    maxExpirationSeconds: int
    nodeName: Required[str]
    nodeUID: Required[str]
    podName: Required[str]
    podUID: Required[str]
    serviceAccountName: Required[str]
    serviceAccountUID: Required[str]
    signerName: Required[str]
    stubPKCS10Request: Required[str]
    unverifiedUserAnnotations: dict[str, str]

class PodCertificateRequestStatus(TypedDict, total=False):
    beginRefreshAt: str
    certificateChain: str
    conditions: list[Condition]
    notAfter: str
    notBefore: str

class PodCondition(TypedDict, total=False):
    lastProbeTime: str
    lastTransitionTime: str
    message: str
    observedGeneration: int
    reason: str
    status: Required[str]
    type: Required[str]

class PodDNSConfig(TypedDict, total=False):
    nameservers: list[str]
    options: list[PodDNSConfigOption]
    searches: list[str]

class PodDNSConfigOption(TypedDict, total=False):
    name: str
    value: str

class PodDisruptionBudget(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: PodDisruptionBudgetSpec
    status: PodDisruptionBudgetStatus

class PodDisruptionBudgetList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[PodDisruptionBudget]]
    kind: str
    metadata: ListMeta

class PodDisruptionBudgetSpec(TypedDict, total=False):
    maxUnavailable: int | str
    minAvailable: int | str
    selector: LabelSelector
    unhealthyPodEvictionPolicy: str

class PodDisruptionBudgetStatus(TypedDict, total=False):
    conditions: list[Condition]
    currentHealthy: int
    desiredHealthy: int
    disruptedPods: dict[str, str]
    disruptionsAllowed: int
    expectedPods: int
    observedGeneration: int

class PodExtendedResourceClaimStatus(TypedDict, total=False):
    requestMappings: Required[list[ContainerExtendedResourceRequest]]
    resourceClaimName: Required[str]

class PodFailurePolicy(TypedDict, total=False):
    rules: Required[list[PodFailurePolicyRule]]

class PodFailurePolicyOnExitCodesRequirement(TypedDict, total=False):
    containerName: str
    operator: Required[str]
    values: Required[list[int]]

class PodFailurePolicyOnPodConditionsPattern(TypedDict, total=False):
    status: str
    type: Required[str]

class PodFailurePolicyRule(TypedDict, total=False):
    action: Required[str]
    onExitCodes: PodFailurePolicyOnExitCodesRequirement
    onPodConditions: list[PodFailurePolicyOnPodConditionsPattern]

class PodGroup(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[PodGroupSpec]
    status: PodGroupStatus

class PodGroupList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[PodGroup]]
    kind: str
    metadata: ListMeta

class PodGroupResourceClaim(TypedDict, total=False):
    name: Required[str]
    resourceClaimName: str
    resourceClaimTemplateName: str

class PodGroupResourceClaimStatus(TypedDict, total=False):
    name: Required[str]
    resourceClaimName: str

class PodGroupSchedulingConstraints(TypedDict, total=False):
    topology: list[TopologyConstraint]

class PodGroupSchedulingPolicy(TypedDict, total=False):
    basic: dict[str, Any]
    gang: GangSchedulingPolicy

class PodGroupSpec(TypedDict, total=False):
    disruptionMode: DisruptionMode
    parentCompositePodGroupName: str
    preemptionPolicy: str
    priority: int
    priorityClassName: str
    resourceClaims: list[PodGroupResourceClaim]
    schedulingConstraints: PodGroupSchedulingConstraints
    schedulingPolicy: Required[PodGroupSchedulingPolicy]
    workloadRef: WorkloadReference

class PodGroupStatus(TypedDict, total=False):
    conditions: list[Condition]
    resourceClaimStatuses: list[PodGroupResourceClaimStatus]

class PodGroupTemplate(TypedDict, total=False):
    disruptionMode: DisruptionMode
    name: Required[str]
    preemptionPolicy: str
    priority: int
    priorityClassName: str
    resourceClaims: list[PodGroupResourceClaim]
    schedulingConstraints: PodGroupSchedulingConstraints
    schedulingPolicy: Required[PodGroupSchedulingPolicy]

class PodIP(TypedDict, total=False):
    ip: Required[str]

class PodList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Pod]]
    kind: str
    metadata: ListMeta

class PodOS(TypedDict, total=False):
    name: Required[str]

class PodReadinessGate(TypedDict, total=False):
    conditionType: Required[str]

class PodResourceClaim(TypedDict, total=False):
    name: Required[str]
    resourceClaimName: str
    resourceClaimTemplateName: str

class PodResourceClaimStatus(TypedDict, total=False):
    name: Required[str]
    resourceClaimName: str

class PodSchedulingGate(TypedDict, total=False):
    name: Required[str]

class PodSchedulingGroup(TypedDict, total=False):
    podGroupName: str

class PodSecurityContext(TypedDict, total=False):
    appArmorProfile: AppArmorProfile
    fsGroup: int
    fsGroupChangePolicy: str
    runAsGroup: int
    runAsNonRoot: bool
    runAsUser: int
    seLinuxChangePolicy: str
    seLinuxOptions: SELinuxOptions
    seccompProfile: SeccompProfile
    supplementalGroups: list[int]
    supplementalGroupsPolicy: str
    sysctls: list[Sysctl]
    windowsOptions: WindowsSecurityContextOptions

class PodSpec(TypedDict, total=False):
    activeDeadlineSeconds: int
    affinity: Affinity
    automountServiceAccountToken: bool
    containers: Required[list[Container]]
    dnsConfig: PodDNSConfig
    dnsPolicy: str
    enableServiceLinks: bool
    ephemeralContainers: list[EphemeralContainer]
    evictionResponders: list[EvictionResponder]
    hostAliases: list[HostAlias]
    hostIPC: bool
    hostNetwork: bool
    hostPID: bool
    hostUsers: bool
    hostname: str
    hostnameOverride: str
    imagePullSecrets: list[LocalObjectReference]
    initContainers: list[Container]
    nodeName: str
    nodeSelector: dict[str, str]
    os: PodOS
    overhead: dict[str, Quantity]
    preemptionPolicy: str
    priority: int
    priorityClassName: str
    readinessGates: list[PodReadinessGate]
    resourceClaims: list[PodResourceClaim]
    resources: ResourceRequirements
    restartPolicy: str
    runtimeClassName: str
    schedulerName: str
    schedulingGates: list[PodSchedulingGate]
    schedulingGroup: PodSchedulingGroup
    securityContext: PodSecurityContext
    serviceAccount: str
    serviceAccountName: str
    setHostnameAsFQDN: bool
    shareProcessNamespace: bool
    subdomain: str
    terminationGracePeriodSeconds: int
    tolerations: list[Toleration]
    topologySpreadConstraints: list[TopologySpreadConstraint]
    volumes: list[Volume]

class PodStatus(TypedDict, total=False):
    allocatedResources: dict[str, Quantity]
    conditions: list[PodCondition]
    containerStatuses: list[ContainerStatus]
    ephemeralContainerStatuses: list[ContainerStatus]
    extendedResourceClaimStatus: PodExtendedResourceClaimStatus
    hostIP: str
    hostIPs: list[HostIP]
    initContainerStatuses: list[ContainerStatus]
    message: str
    nodeAllocatableResourceClaimStatuses: list[NodeAllocatableResourceClaimStatus]
    nominatedNodeName: str
    observedGeneration: int
    phase: str
    podIP: str
    podIPs: list[PodIP]
    qosClass: str
    reason: str
    resize: str
    resourceClaimStatuses: list[PodResourceClaimStatus]
    resources: ResourceRequirements
    startTime: str
    volumeHealth: list[PodVolumeHealth]

class PodTemplate(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    template: PodTemplateSpec

class PodTemplateList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[PodTemplate]]
    kind: str
    metadata: ListMeta

class PodTemplateSpec(TypedDict, total=False):
    metadata: TemplateMeta
    spec: Required[PodSpec]

class PodVolumeHealth(TypedDict, total=False):
    healthConditions: list[VolumeHealthCondition]
    lastTransitionTime: str
    name: Required[str]

class PodsMetricSource(TypedDict, total=False):
    metric: Required[MetricIdentifier]
    target: Required[MetricTarget]

class PodsMetricStatus(TypedDict, total=False):
    current: Required[MetricValueStatus]
    metric: Required[MetricIdentifier]

class PolicyRule(TypedDict, total=False):
    apiGroups: list[str]
    nonResourceURLs: list[str]
    resourceNames: list[str]
    resources: list[str]
    verbs: Required[list[str]]

class PolicyRulesWithSubjects(TypedDict, total=False):
    nonResourceRules: list[NonResourcePolicyRule]
    resourceRules: list[ResourcePolicyRule]
    subjects: Required[list[FlowcontrolSubject]]

class PoolStatus(TypedDict, total=False):
    allocatedDevices: int
    availableDevices: int
    driver: Required[str]
    generation: Required[int]
    nodeName: str
    partitionSummary: list[PartitionTypeStatus]
    poolName: Required[str]
    resourceSliceCount: int
    shareableSummary: ShareableSummaryStatus
    totalDevices: int
    unavailableDevices: int
    validationError: str

class PortStatus(TypedDict, total=False):
    error: str
    port: Required[int]
    protocol: Required[str]

class PortworxVolumeSource(TypedDict, total=False):
    fsType: str
    readOnly: bool
    volumeID: Required[str]

class Preconditions(TypedDict, total=False):
    resourceVersion: str
    uid: str

class PreferredSchedulingTerm(TypedDict, total=False):
    preference: Required[NodeSelectorTerm]
    weight: Required[int]

class PriorityClass(TypedDict, total=False):
    apiVersion: str
    description: str
    globalDefault: bool
    kind: str
    metadata: Required[ObjectMeta]
    preemptionPolicy: str
    value: int

class PriorityClassList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[PriorityClass]]
    kind: str
    metadata: ListMeta

class PriorityLevelConfiguration(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[PriorityLevelConfigurationSpec]
    status: PriorityLevelConfigurationStatus

class PriorityLevelConfigurationCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    reason: str
    status: str
    type: Required[str]

class PriorityLevelConfigurationList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[PriorityLevelConfiguration]]
    kind: str
    metadata: ListMeta

class PriorityLevelConfigurationReference(TypedDict, total=False):
    name: Required[str]

class PriorityLevelConfigurationSpec(TypedDict, total=False):
    exempt: ExemptPriorityLevelConfiguration
    limited: LimitedPriorityLevelConfiguration
    type: Required[str]

class PriorityLevelConfigurationStatus(TypedDict, total=False):
    conditions: list[PriorityLevelConfigurationCondition]

class Probe(TypedDict, total=False):
    exec: ExecAction
    failureThreshold: int
    grpc: GRPCAction
    httpGet: HTTPGetAction
    initialDelaySeconds: int
    periodSeconds: int
    successThreshold: int
    tcpSocket: TCPSocketAction
    terminationGracePeriodSeconds: int
    timeoutSeconds: int

class ProjectedVolumeSource(TypedDict, total=False):
    defaultMode: int
    defaultUser: int
    sources: list[VolumeProjection]

class QueuingConfiguration(TypedDict, total=False):
    handSize: int
    queueLengthLimit: int
    queues: int

class QuobyteVolumeSource(TypedDict, total=False):
    group: str
    readOnly: bool
    registry: Required[str]
    tenant: str
    user: str
    volume: Required[str]

class RBDPersistentVolumeSource(TypedDict, total=False):
    fsType: str
    image: Required[str]
    keyring: str
    monitors: Required[list[str]]
    pool: str
    readOnly: bool
    secretRef: SecretReference
    user: str

class RBDVolumeSource(TypedDict, total=False):
    fsType: str
    image: Required[str]
    keyring: str
    monitors: Required[list[str]]
    pool: str
    readOnly: bool
    secretRef: LocalObjectReference
    user: str

class ReplicaSet(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[ReplicaSetSpec]
    status: ReplicaSetStatus

class ReplicaSetCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    reason: str
    status: str
    type: str

class ReplicaSetList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ReplicaSet]]
    kind: str
    metadata: ListMeta

class ReplicaSetSpec(TypedDict, total=False):
    minReadySeconds: int
    replicas: int
    selector: Required[LabelSelector]
    template: PodTemplateSpec

class ReplicaSetStatus(TypedDict, total=False):
    availableReplicas: int
    conditions: list[ReplicaSetCondition]
    fullyLabeledReplicas: int
    observedGeneration: int
    readyReplicas: int
    replicas: int
    terminatingReplicas: int

class ReplicationController(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: ReplicationControllerSpec
    status: ReplicationControllerStatus

class ReplicationControllerCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    reason: str
    status: Required[str]
    type: Required[str]

class ReplicationControllerList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ReplicationController]]
    kind: str
    metadata: ListMeta

class ReplicationControllerSpec(TypedDict, total=False):
    minReadySeconds: int
    replicas: int
    selector: dict[str, str]
    template: PodTemplateSpec

class ReplicationControllerStatus(TypedDict, total=False):
    availableReplicas: int
    conditions: list[ReplicationControllerCondition]
    fullyLabeledReplicas: int
    observedGeneration: int
    readyReplicas: int
    replicas: int

class Requester(TypedDict, total=False):
    intent: Required[str]
    name: Required[str]

class ResourceAttributes(TypedDict, total=False):
    fieldSelector: FieldSelectorAttributes
    group: str
    labelSelector: LabelSelectorAttributes
    name: str
    namespace: str
    resource: str
    subresource: str
    verb: str
    version: str

class ResourceClaim(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: ResourceClaimSpec
    status: ResourceClaimStatus

class ResourceClaimConsumerReference(TypedDict, total=False):
    apiGroup: str
    name: Required[str]
    resource: Required[str]
    uid: Required[str]

class ResourceClaimList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ResourceClaim]]
    kind: str
    metadata: ListMeta

class ResourceClaimSpec(TypedDict, total=False):
    devices: DeviceClaim

class ResourceClaimStatus(TypedDict, total=False):
    allocation: AllocationResult
    devices: list[AllocatedDeviceStatus]
    reservedFor: list[ResourceClaimConsumerReference]

class ResourceClaimTemplate(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: ResourceClaimTemplateSpec

class ResourceClaimTemplateList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ResourceClaimTemplate]]
    kind: str
    metadata: ListMeta

class ResourceClaimTemplateSpec(TypedDict, total=False):
    metadata: TemplateMeta
    spec: ResourceClaimSpec

class ResourceFieldSelector(TypedDict, total=False):
    containerName: str
    divisor: Quantity
    resource: Required[str]

class ResourceHealth(TypedDict, total=False):
    health: str
    message: str
    resourceID: Required[str]

class ResourceMetricSource(TypedDict, total=False):
    name: Required[str]
    target: Required[MetricTarget]

class ResourceMetricStatus(TypedDict, total=False):
    current: Required[MetricValueStatus]
    name: Required[str]

class ResourcePolicyRule(TypedDict, total=False):
    apiGroups: Required[list[str]]
    clusterScope: bool
    namespaces: list[str]
    resources: Required[list[str]]
    verbs: Required[list[str]]

class ResourcePool(TypedDict, total=False):
    generation: Required[int]
    name: Required[str]
    resourceSliceCount: Required[int]

class ResourcePoolStatusRequest(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[ResourcePoolStatusRequestSpec]
    status: ResourcePoolStatusRequestStatus

class ResourcePoolStatusRequestList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ResourcePoolStatusRequest]]
    kind: str
    metadata: ListMeta

class ResourcePoolStatusRequestSpec(TypedDict, total=False):
    defaultPartitionTypeAttribute: str
    driver: Required[str]
    limit: int
    poolName: str

class ResourcePoolStatusRequestStatus(TypedDict, total=False):
    conditions: list[Condition]
    poolCount: int
    pools: list[PoolStatus]

class ResourceQuota(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: ResourceQuotaSpec
    status: ResourceQuotaStatus

class ResourceQuotaList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ResourceQuota]]
    kind: str
    metadata: ListMeta

class ResourceQuotaSpec(TypedDict, total=False):
    hard: dict[str, Quantity]
    scopeSelector: ScopeSelector
    scopes: list[str]

class ResourceQuotaStatus(TypedDict, total=False):
    hard: dict[str, Quantity]
    used: dict[str, Quantity]

class ResourceRequirements(TypedDict, total=False):
    claims: list[CoreResourceClaim]
    limits: dict[str, Quantity]
    requests: dict[str, Quantity]

class ResourceRule(TypedDict, total=False):
    apiGroups: list[str]
    resourceNames: list[str]
    resources: list[str]
    verbs: Required[list[str]]

class ResourceSlice(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[ResourceSliceSpec]

class ResourceSliceList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ResourceSlice]]
    kind: str
    metadata: ListMeta

class ResourceSliceSpec(TypedDict, total=False):
    allNodes: bool
    devices: list[Device]
    driver: Required[str]
    nodeName: str
    nodeSelector: NodeSelector
    partitionTypeAttribute: str
    perDeviceNodeSelection: bool
    pool: Required[ResourcePool]
    sharedCounters: list[CounterSet]
    skipNodeOperations: list[str]

class ResourceStatus(TypedDict, total=False):
    name: Required[str]
    resources: list[ResourceHealth]

class ResponderStatus(TypedDict, total=False):
    completionTime: str
    expectedCompletionTime: str
    heartbeatTime: str
    message: str
    name: Required[str]
    startTime: str

class Role(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    rules: list[PolicyRule]

class RoleBinding(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    roleRef: Required[RoleRef]
    subjects: list[Subject]

class RoleBindingList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[RoleBinding]]
    kind: str
    metadata: ListMeta

class RoleList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Role]]
    kind: str
    metadata: ListMeta

class RoleRef(TypedDict, total=False):
    apiGroup: str
    kind: Required[str]
    name: Required[str]

class RollingUpdateDaemonSet(TypedDict, total=False):
    maxSurge: int | str
    maxUnavailable: int | str

class RollingUpdateDeployment(TypedDict, total=False):
    maxSurge: int | str
    maxUnavailable: int | str

class RollingUpdateStatefulSetStrategy(TypedDict, total=False):
    maxUnavailable: int | str
    partition: int

class RuleWithOperations(TypedDict, total=False):
    apiGroups: list[str]
    apiVersions: list[str]
    operations: list[str]
    resources: list[str]
    scope: str

class RuntimeClass(TypedDict, total=False):
    apiVersion: str
    handler: Required[str]
    kind: str
    metadata: Required[ObjectMeta]
    overhead: Overhead
    scheduling: Scheduling

class RuntimeClassList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[RuntimeClass]]
    kind: str
    metadata: ListMeta

class SELinuxOptions(TypedDict, total=False):
    level: str
    role: str
    type: str
    user: str

class Scale(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: TemplateMeta
    spec: ScaleSpec
    status: ScaleStatus

class ScaleIOPersistentVolumeSource(TypedDict, total=False):
    fsType: str
    gateway: Required[str]
    protectionDomain: str
    readOnly: bool
    secretRef: Required[SecretReference]
    sslEnabled: bool
    storageMode: str
    storagePool: str
    system: Required[str]
    volumeName: str

class ScaleIOVolumeSource(TypedDict, total=False):
    fsType: str
    gateway: Required[str]
    protectionDomain: str
    readOnly: bool
    secretRef: Required[LocalObjectReference]
    sslEnabled: bool
    storageMode: str
    storagePool: str
    system: Required[str]
    volumeName: str

class ScaleSpec(TypedDict, total=False):
    replicas: int

class ScaleStatus(TypedDict, total=False):
    replicas: int
    selector: str

class Scheduling(TypedDict, total=False):
    nodeSelector: dict[str, str]
    tolerations: list[Toleration]

class SchedulingTypedLocalObjectReference(TypedDict, total=False):
    apiGroup: str
    kind: Required[str]
    name: Required[str]

class ScopeSelector(TypedDict, total=False):
    matchExpressions: list[ScopedResourceSelectorRequirement]

class ScopedResourceSelectorRequirement(TypedDict, total=False):
    operator: Required[str]
    scopeName: Required[str]
    values: list[str]

class SeccompProfile(TypedDict, total=False):
    localhostProfile: str
    type: Required[str]

class Secret(TypedDict, total=False):
    apiVersion: str
    data: dict[str, str]
    immutable: bool
    kind: str
    metadata: Required[ObjectMeta]
    stringData: dict[str, str]
    type: str

class SecretEnvSource(TypedDict, total=False):
    name: str
    optional: bool

class SecretKeySelector(TypedDict, total=False):
    key: Required[str]
    name: str
    optional: bool

class SecretList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Secret]]
    kind: str
    metadata: ListMeta

class SecretProjection(TypedDict, total=False):
    items: list[KeyToPath]
    name: str
    optional: bool

class SecretReference(TypedDict, total=False):
    name: str
    namespace: str

class SecretVolumeSource(TypedDict, total=False):
    defaultMode: int
    defaultUser: int
    items: list[KeyToPath]
    optional: bool
    secretName: str

class SecurityContext(TypedDict, total=False):
    allowPrivilegeEscalation: bool
    appArmorProfile: AppArmorProfile
    capabilities: Capabilities
    privileged: bool
    procMount: str
    readOnlyRootFilesystem: bool
    runAsGroup: int
    runAsNonRoot: bool
    runAsUser: int
    seLinuxOptions: SELinuxOptions
    seccompProfile: SeccompProfile
    windowsOptions: WindowsSecurityContextOptions

class SelectableField(TypedDict, total=False):
    jsonPath: Required[str]

class SelfSubjectAccessReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: TemplateMeta
    spec: Required[SelfSubjectAccessReviewSpec]
    status: SubjectAccessReviewStatus

class SelfSubjectAccessReviewSpec(TypedDict, total=False):
    nonResourceAttributes: NonResourceAttributes
    resourceAttributes: ResourceAttributes

class SelfSubjectReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: TemplateMeta
    status: SelfSubjectReviewStatus

class SelfSubjectReviewStatus(TypedDict, total=False):
    userInfo: UserInfo

class SelfSubjectRulesReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: TemplateMeta
    spec: Required[SelfSubjectRulesReviewSpec]
    status: SubjectRulesReviewStatus

class SelfSubjectRulesReviewSpec(TypedDict, total=False):
    namespace: str

class ServerAddressByClientCIDR(TypedDict, total=False):
    clientCIDR: Required[str]
    serverAddress: Required[str]

class ServerStorageVersion(TypedDict, total=False):
    apiServerID: Required[str]
    decodableVersions: Required[list[str]]
    encodingVersion: Required[str]
    servedVersions: list[str]

class Service(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: ServiceSpec
    status: ServiceStatus

class ServiceAccount(TypedDict, total=False):
    apiVersion: str
    automountServiceAccountToken: bool
    imagePullSecrets: list[LocalObjectReference]
    kind: str
    metadata: Required[ObjectMeta]
    secrets: list[ObjectReference]

class ServiceAccountList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ServiceAccount]]
    kind: str
    metadata: ListMeta

class ServiceAccountSubject(TypedDict, total=False):
    name: Required[str]
    namespace: Required[str]

class ServiceAccountTokenProjection(TypedDict, total=False):
    audience: str
    expirationSeconds: int
    path: Required[str]
    user: int

class ServiceBackendPort(TypedDict, total=False):
    name: str
    number: int

class ServiceCIDR(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: ServiceCIDRSpec
    status: ServiceCIDRStatus

class ServiceCIDRList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ServiceCIDR]]
    kind: str
    metadata: ListMeta

class ServiceCIDRSpec(TypedDict, total=False):
    cidrs: list[str]

class ServiceCIDRStatus(TypedDict, total=False):
    conditions: list[Condition]

class ServiceList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Service]]
    kind: str
    metadata: ListMeta

class ServicePort(TypedDict, total=False):
    appProtocol: str
    name: str
    nodePort: int
    port: Required[int]
    protocol: str
    targetPort: int | str

class ServiceReference(TypedDict, total=False):
    name: Required[str]
    namespace: Required[str]
    path: str
    port: int

class ServiceSpec(TypedDict, total=False):
    allocateLoadBalancerNodePorts: bool
    clusterIP: str
    clusterIPs: list[str]
    externalIPs: list[str]
    externalName: str
    externalTrafficPolicy: str
    healthCheckNodePort: int
    internalTrafficPolicy: str
    ipFamilies: list[str]
    ipFamilyPolicy: str
    loadBalancerClass: str
    loadBalancerIP: str
    loadBalancerSourceRanges: list[str]
    ports: list[ServicePort]
    publishNotReadyAddresses: bool
    selector: dict[str, str]
    sessionAffinity: str
    sessionAffinityConfig: SessionAffinityConfig
    trafficDistribution: str
    type: str

class ServiceStatus(TypedDict, total=False):
    conditions: list[Condition]
    loadBalancer: LoadBalancerStatus

class SessionAffinityConfig(TypedDict, total=False):
    clientIP: ClientIPConfig

class ShardInfo(TypedDict, total=False):
    selector: Required[str]

class ShareableCapacityStatus(TypedDict, total=False):
    available: Required[Quantity]
    consumed: Required[Quantity]
    name: Required[str]
    total: Required[Quantity]

class ShareableSummaryStatus(TypedDict, total=False):
    capacity: list[ShareableCapacityStatus]
    fullyAvailableDevices: Required[int]
    partiallyAvailableDevices: Required[int]

class SleepAction(TypedDict, total=False):
    seconds: Required[int]

class StatefulSet(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[StatefulSetSpec]
    status: StatefulSetStatus

class StatefulSetCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    reason: str
    status: str
    type: str

class StatefulSetList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[StatefulSet]]
    kind: str
    metadata: ListMeta

class StatefulSetOrdinals(TypedDict, total=False):
    start: int

class StatefulSetPersistentVolumeClaimRetentionPolicy(TypedDict, total=False):
    whenDeleted: str
    whenScaled: str

class StatefulSetSpec(TypedDict, total=False):
    minReadySeconds: int
    ordinals: StatefulSetOrdinals
    persistentVolumeClaimRetentionPolicy: StatefulSetPersistentVolumeClaimRetentionPolicy
    podManagementPolicy: str
    replicas: int
    revisionHistoryLimit: int
    selector: Required[LabelSelector]
    serviceName: str
    template: Required[PodTemplateSpec]
    updateStrategy: StatefulSetUpdateStrategy
    volumeClaimTemplates: list[PersistentVolumeClaim]

class StatefulSetStatus(TypedDict, total=False):
    availableReplicas: int
    collisionCount: int
    conditions: list[StatefulSetCondition]
    currentReplicas: int
    currentRevision: str
    observedGeneration: int
    readyReplicas: int
    replicas: int
    updateRevision: str
    updatedReplicas: int

class StatefulSetUpdateStrategy(TypedDict, total=False):
    rollingUpdate: RollingUpdateStatefulSetStrategy
    type: str

class Status(TypedDict, total=False):
    apiVersion: str
    code: int
    details: StatusDetails
    kind: str
    message: str
    metadata: ListMeta
    reason: str
    status: str

class StatusCause(TypedDict, total=False):
    field: str
    message: str
    reason: str

class StatusDetails(TypedDict, total=False):
    causes: list[StatusCause]
    group: str
    kind: str
    name: str
    retryAfterSeconds: int
    uid: str

class StorageClass(TypedDict, total=False):
    allowVolumeExpansion: bool
    allowedTopologies: list[TopologySelectorTerm]
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    mountOptions: list[str]
    parameters: dict[str, str]
    provisioner: Required[str]
    reclaimPolicy: str
    volumeBindingMode: str

class StorageClassList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[StorageClass]]
    kind: str
    metadata: ListMeta

class StorageHealth(TypedDict, total=False):
    healthConditions: list[StorageHealthCondition]
    name: Required[str]

class StorageHealthCondition(TypedDict, total=False):
    accessMode: str
    lastTransitionTime: str
    message: str
    reason: Required[str]
    status: Required[str]
    volumeMode: str

class StorageOSPersistentVolumeSource(TypedDict, total=False):
    fsType: str
    readOnly: bool
    secretRef: ObjectReference
    volumeName: str
    volumeNamespace: str

class StorageOSVolumeSource(TypedDict, total=False):
    fsType: str
    readOnly: bool
    secretRef: LocalObjectReference
    volumeName: str
    volumeNamespace: str

class StorageTokenRequest(TypedDict, total=False):
    audience: Required[str]
    expirationSeconds: int

class StorageVersion(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: dict[str, Any]
    status: StorageVersionStatus

class StorageVersionCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: Required[str]
    observedGeneration: int
    reason: Required[str]
    status: Required[str]
    type: Required[str]

class StorageVersionList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[StorageVersion]]
    kind: str
    metadata: ListMeta

class StorageVersionMigration(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[StorageVersionMigrationSpec]
    status: StorageVersionMigrationStatus

class StorageVersionMigrationList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[StorageVersionMigration]]
    kind: str
    metadata: ListMeta

class StorageVersionMigrationSpec(TypedDict, total=False):
    resource: Required[GroupResource]

class StorageVersionMigrationStatus(TypedDict, total=False):
    conditions: list[Condition]
    resourceVersion: str

class StorageVersionStatus(TypedDict, total=False):
    commonEncodingVersion: str
    conditions: list[StorageVersionCondition]
    storageVersions: list[ServerStorageVersion]

class Subject(TypedDict, total=False):
    apiGroup: str
    kind: Required[str]
    name: Required[str]
    namespace: str

class SubjectAccessReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: TemplateMeta
    spec: Required[SubjectAccessReviewSpec]
    status: SubjectAccessReviewStatus

class SubjectAccessReviewSpec(TypedDict, total=False):
    extra: dict[str, list[str]]
    groups: list[str]
    nonResourceAttributes: NonResourceAttributes
    resourceAttributes: ResourceAttributes
    uid: str
    user: str

class SubjectAccessReviewStatus(TypedDict, total=False):
    allowed: bool
    denied: bool
    evaluationError: str
    reason: str

class SubjectRulesReviewStatus(TypedDict, total=False):
    evaluationError: str
    incomplete: bool
    nonResourceRules: list[NonResourceRule]
    resourceRules: list[ResourceRule]

class SuccessPolicy(TypedDict, total=False):
    rules: Required[list[SuccessPolicyRule]]

class SuccessPolicyRule(TypedDict, total=False):
    succeededCount: int
    succeededIndexes: str

class Sysctl(TypedDict, total=False):
    name: Required[str]
    value: Required[str]

class TCPSocketAction(TypedDict, total=False):
    host: str
    port: Required[int | str]

class Taint(TypedDict, total=False):
    effect: Required[str]
    key: Required[str]
    timeAdded: str
    value: str

class TargetResponder(TypedDict, total=False):
    name: Required[str]
    priority: Required[int]
    state: Required[str]

class TokenRequest(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: TemplateMeta
    spec: TokenRequestSpec
    status: TokenRequestStatus

class TokenRequestSpec(TypedDict, total=False):
    attestations: dict[str, list[str]]
    audiences: list[str]
    boundObjectRef: BoundObjectReference
    expirationSeconds: int

class TokenRequestStatus(TypedDict, total=False):
    expirationTimestamp: str
    token: str

class TokenReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: TemplateMeta
    spec: Required[TokenReviewSpec]
    status: TokenReviewStatus

class TokenReviewSpec(TypedDict, total=False):
    audiences: list[str]
    token: Required[str]

class TokenReviewStatus(TypedDict, total=False):
    audiences: list[str]
    authenticated: bool
    error: str
    user: UserInfo

class Toleration(TypedDict, total=False):
    effect: str
    key: str
    operator: str
    tolerationSeconds: int
    value: str

class TopologyConstraint(TypedDict, total=False):
    key: Required[str]

class TopologySelectorLabelRequirement(TypedDict, total=False):
    key: Required[str]
    values: Required[list[str]]

class TopologySelectorTerm(TypedDict, total=False):
    matchLabelExpressions: list[TopologySelectorLabelRequirement]

class TopologySpreadConstraint(TypedDict, total=False):
    labelSelector: LabelSelector
    matchLabelKeys: list[str]
    maxSkew: Required[int]
    minDomains: int
    nodeAffinityPolicy: str
    nodeTaintsPolicy: str
    topologyKey: Required[str]
    whenUnsatisfiable: Required[str]

class TypeChecking(TypedDict, total=False):
    expressionWarnings: list[ExpressionWarning]

class TypedLocalObjectReference(TypedDict, total=False):
    apiGroup: str
    kind: Required[str]
    name: Required[str]

class TypedObjectReference(TypedDict, total=False):
    apiGroup: str
    kind: Required[str]
    name: Required[str]
    namespace: str

class UncountedTerminatedPods(TypedDict, total=False):
    failed: list[str]
    succeeded: list[str]

class UserInfo(TypedDict, total=False):
    extra: dict[str, list[str]]
    groups: list[str]
    uid: str
    username: str

class UserSubject(TypedDict, total=False):
    name: Required[str]

class ValidatingAdmissionPolicy(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: ValidatingAdmissionPolicySpec
    status: ValidatingAdmissionPolicyStatus

class ValidatingAdmissionPolicyBinding(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[ValidatingAdmissionPolicyBindingSpec]

class ValidatingAdmissionPolicyBindingList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ValidatingAdmissionPolicyBinding]]
    kind: str
    metadata: ListMeta

class ValidatingAdmissionPolicyBindingSpec(TypedDict, total=False):
    matchResources: MatchResources
    paramRef: ParamRef
    policyName: Required[str]
    validationActions: Required[list[str]]

class ValidatingAdmissionPolicyList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ValidatingAdmissionPolicy]]
    kind: str
    metadata: ListMeta

class ValidatingAdmissionPolicySpec(TypedDict, total=False):
    auditAnnotations: list[AuditAnnotation]
    failurePolicy: str
    matchConditions: list[MatchCondition]
    matchConstraints: MatchResources
    paramKind: ParamKind
    validations: list[Validation]
    variables: list[Variable]

class ValidatingAdmissionPolicyStatus(TypedDict, total=False):
    conditions: list[Condition]
    observedGeneration: int
    typeChecking: TypeChecking

class ValidatingWebhook(TypedDict, total=False):
    admissionReviewVersions: Required[list[str]]
    clientConfig: Required[WebhookClientConfig]
    failurePolicy: str
    matchConditions: list[MatchCondition]
    matchPolicy: str
    name: Required[str]
    namespaceSelector: LabelSelector
    objectSelector: LabelSelector
    rules: list[RuleWithOperations]
    sideEffects: Required[str]
    timeoutSeconds: int

class ValidatingWebhookConfiguration(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    webhooks: list[ValidatingWebhook]

class ValidatingWebhookConfigurationList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[ValidatingWebhookConfiguration]]
    kind: str
    metadata: ListMeta

class Validation(TypedDict, total=False):
    expression: Required[str]
    message: str
    messageExpression: str
    reason: str

class ValidationRule(TypedDict, total=False):
    fieldPath: str
    message: str
    messageExpression: str
    optionalOldSelf: bool
    reason: str
    rule: Required[str]

class Variable(TypedDict, total=False):
    expression: Required[str]
    name: Required[str]

class Volume(TypedDict, total=False):
    awsElasticBlockStore: AWSElasticBlockStoreVolumeSource
    azureDisk: AzureDiskVolumeSource
    azureFile: AzureFileVolumeSource
    cephfs: CephFSVolumeSource
    cinder: CinderVolumeSource
    configMap: ConfigMapVolumeSource
    csi: CSIVolumeSource
    downwardAPI: DownwardAPIVolumeSource
    emptyDir: EmptyDirVolumeSource
    ephemeral: EphemeralVolumeSource
    fc: FCVolumeSource
    flexVolume: FlexVolumeSource
    flocker: FlockerVolumeSource
    gcePersistentDisk: GCEPersistentDiskVolumeSource
    gitRepo: GitRepoVolumeSource
    glusterfs: GlusterfsVolumeSource
    hostPath: HostPathVolumeSource
    image: ImageVolumeSource
    iscsi: ISCSIVolumeSource
    name: Required[str]
    nfs: NFSVolumeSource
    persistentVolumeClaim: PersistentVolumeClaimVolumeSource
    photonPersistentDisk: PhotonPersistentDiskVolumeSource
    portworxVolume: PortworxVolumeSource
    projected: ProjectedVolumeSource
    quobyte: QuobyteVolumeSource
    rbd: RBDVolumeSource
    scaleIO: ScaleIOVolumeSource
    secret: SecretVolumeSource
    storageos: StorageOSVolumeSource
    vsphereVolume: VsphereVirtualDiskVolumeSource

class VolumeAttachment(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[VolumeAttachmentSpec]
    status: VolumeAttachmentStatus

class VolumeAttachmentList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[VolumeAttachment]]
    kind: str
    metadata: ListMeta

class VolumeAttachmentSource(TypedDict, total=False):
    inlineVolumeSpec: PersistentVolumeSpec
    persistentVolumeName: str

class VolumeAttachmentSpec(TypedDict, total=False):
    attacher: Required[str]
    nodeName: Required[str]
    source: Required[VolumeAttachmentSource]

class VolumeAttachmentStatus(TypedDict, total=False):
    attachError: VolumeError
    attached: bool
    attachmentMetadata: dict[str, str]
    detachError: VolumeError

class VolumeAttributesClass(TypedDict, total=False):
    apiVersion: str
    driverName: Required[str]
    kind: str
    metadata: Required[ObjectMeta]
    parameters: dict[str, str]

class VolumeAttributesClassList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[VolumeAttributesClass]]
    kind: str
    metadata: ListMeta

class VolumeDevice(TypedDict, total=False):
    devicePath: Required[str]
    name: Required[str]

class VolumeError(TypedDict, total=False):
    errorCode: int
    message: str
    time: str

class VolumeHealthCondition(TypedDict, total=False):
    message: str
    reason: Required[str]
    status: Required[str]

class VolumeHealthStatus(TypedDict, total=False):
    healthConditions: list[VolumeHealthCondition]
    lastTransitionTime: str

class VolumeMount(TypedDict, total=False):
    bindMountOptions: list[str]
    mountPath: Required[str]
    mountPropagation: str
    name: Required[str]
    readOnly: bool
    recursiveReadOnly: str
    subPath: str
    subPathExpr: str

class VolumeMountStatus(TypedDict, total=False):
    mountPath: Required[str]
    name: Required[str]
    readOnly: bool
    recursiveReadOnly: str
    volumeStatus: VolumeStatus

class VolumeNodeAffinity(TypedDict, total=False):
    required: NodeSelector

class VolumeNodeResources(TypedDict, total=False):
    count: int

class VolumeProjection(TypedDict, total=False):
    clusterTrustBundle: ClusterTrustBundleProjection
    configMap: ConfigMapProjection
    downwardAPI: DownwardAPIProjection
    podCertificate: PodCertificateProjection
    secret: SecretProjection
    serviceAccountToken: ServiceAccountTokenProjection

class VolumeResourceRequirements(TypedDict, total=False):
    limits: dict[str, Quantity]
    requests: dict[str, Quantity]

class VolumeStatus(TypedDict, total=False):
    image: ImageVolumeStatus

class VsphereVirtualDiskVolumeSource(TypedDict, total=False):
    fsType: str
    storagePolicyID: str
    storagePolicyName: str
    volumePath: Required[str]

class WatchEvent(TypedDict, total=False):
    object: Required[Any]
    type: Required[str]

class WebhookClientConfig(TypedDict, total=False):
    caBundle: str
    service: ServiceReference
    url: str

class WebhookConversion(TypedDict, total=False):
    clientConfig: ApiextensionsWebhookClientConfig
    conversionReviewVersions: Required[list[str]]

class WeightedPodAffinityTerm(TypedDict, total=False):
    podAffinityTerm: Required[PodAffinityTerm]
    weight: Required[int]

class WindowsSecurityContextOptions(TypedDict, total=False):
    gmsaCredentialSpec: str
    gmsaCredentialSpecName: str
    hostProcess: bool
    runAsUserName: str

class Workload(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]
    spec: Required[WorkloadSpec]

class WorkloadList(TypedDict, total=False):
    apiVersion: str
    items: Required[list[Workload]]
    kind: str
    metadata: ListMeta

class WorkloadPodGroupDisruptionMode(TypedDict, total=False):
    all: dict[str, Any]
    single: dict[str, Any]

class WorkloadPodGroupGangSchedulingPolicy(TypedDict, total=False):
    minCount: int

class WorkloadPodGroupResourceClaim(TypedDict, total=False):
    name: Required[str]
    resourceClaimName: str
    resourceClaimTemplateName: str

class WorkloadPodGroupSchedulingConstraints(TypedDict, total=False):
    topology: list[TopologyConstraint]

class WorkloadPodGroupSchedulingPolicy(TypedDict, total=False):
    basic: dict[str, Any]
    gang: WorkloadPodGroupGangSchedulingPolicy

class WorkloadReference(TypedDict, total=False):
    templateName: Required[str]
    workloadName: Required[str]

class WorkloadSpec(TypedDict, total=False):
    compositePodGroupTemplates: list[CompositePodGroupTemplate]
    controllerRef: SchedulingTypedLocalObjectReference
    podGroupTemplates: list[PodGroupTemplate]

class TemplateMeta(TypedDict, total=False):
    annotations: dict[str, str]
    creationTimestamp: str
    deletionGracePeriodSeconds: int
    deletionTimestamp: str
    finalizers: list[str]
    generateName: str
    generation: int
    labels: dict[str, str]
    managedFields: list[ManagedFieldsEntry]
    name: str
    namespace: str
    ownerReferences: list[OwnerReference]
    resourceVersion: str
    selfLink: str
    uid: str
